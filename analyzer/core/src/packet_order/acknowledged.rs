//! Tells wrong times from a wrong order: who acknowledges data has received it.

use std::collections::{HashMap, VecDeque};

use crate::capture_file::Packet;
use crate::limits;
use crate::packet::{Address, Dissector, Outcome, Segment, TcpFlags};

/// From whom to whom.
type Flow = [(Address, u16); 2];

/// Data of a packet that waits.
#[derive(Debug)]
struct Data {
    time_ns: i64,
    /// Sequence number behind it.
    end: u32,
    /// The sender's timestamp: an acknowledgement of an earlier transmission has an older one.
    timestamp: Option<u32>,
}

impl Data {
    fn is_acknowledged_by(&self, segment: &Segment<'_>) -> bool {
        let echo = segment.timestamps.map(|(_, echo)| echo);
        let is_older = |(echo, timestamp): (u32, u32)| echo.wrapping_sub(timestamp) as i32 >= 0;
        segment.ack == self.end && echo.zip(self.timestamp).is_none_or(is_older)
    }
}

/// The data of packets that wait, by flow, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    dissector: Dissector,
    flows: HashMap<Flow, VecDeque<Data>>,
    /// How many were noted.
    noted: usize,
}

impl Acknowledged {
    /// Notes the data of a packet.
    pub fn add(&mut self, packet: &Packet<'_>) {
        let Some(segment) = segment(&mut self.dissector, packet).filter(|segment| segment.payload_len > 0) else {
            return;
        };
        let [from, to] = ends(&segment);
        let data = self.flows.entry([from, to]).or_default();
        let end = segment.seq.wrapping_add(segment.payload_len);
        let timestamp = segment.timestamps.map(|(own, _)| own);
        data.push_back(Data { time_ns: packet.time_ns, end, timestamp });
        self.noted += 1;
        if data.len() > limits::SORTED_DATA {
            data.pop_front();
        }
    }

    /// Whether no more should be noted.
    pub fn is_full(&self) -> bool {
        self.noted > 2 * limits::SORTED_PACKETS
    }

    /// Whether a packet acknowledges data of one with a later time.
    pub fn are_acknowledged_by(&mut self, packet: &Packet<'_>) -> bool {
        let Some(segment) = segment(&mut self.dissector, packet) else { return false };
        let [from, to] = ends(&segment);
        let data = self.flows.get(&[to, from]);
        segment.flags.contains(TcpFlags::ACK)
            && data.is_some_and(|data| {
                data.iter().any(|data| data.time_ns > packet.time_ns && data.is_acknowledged_by(&segment))
            })
    }
}

fn segment<'a>(dissector: &'a mut Dissector, packet: &Packet<'a>) -> Option<Segment<'a>> {
    match dissector.dissect(packet.link_type, packet.captured, packet.original_len, packet.time_ns) {
        Outcome::Tcp(segment) => Some(segment),
        _ => None,
    }
}

fn ends(segment: &Segment<'_>) -> Flow {
    [(segment.source, segment.source_port), (segment.destination, segment.destination_port)]
}
