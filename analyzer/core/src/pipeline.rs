//! From captured packets to tables: one pass, one packet at a time.

use crate::budget::Budget;
use crate::capture_file::Packet;
use crate::context::{Context, Options};
use crate::packet::{Dissector, Malformed, Outcome};
use crate::tables::{Connections, Layer, NO_CONNECTION};
use crate::tcp::ConnectionTable;

/// Counts of what was recorded.
#[derive(Clone, Debug, Default)]
pub struct CaptureCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Bytes recorded.
    pub captured_bytes: u64,
    /// The earliest time, nanoseconds since the epoch.
    pub first_time_ns: Option<i64>,
    /// The latest time, nanoseconds since the epoch.
    pub last_time_ns: Option<i64>,
    /// TCP packets.
    pub tcp: u64,
    /// Packets that are not TCP.
    pub not_tcp: u64,
    /// Packets that cannot be read as what they claim to be.
    pub malformed: u64,
    /// Packets cut by the snaplen.
    pub truncated: u64,
    /// IP fragments that wait for, or make up, a datagram.
    pub fragments: u64,
    /// Packets of link types that are not supported.
    pub unsupported_link: u64,
    /// Packets with an earlier time than the one before.
    pub time_steps_back: u64,
    /// Packets that came in a tunnel.
    pub tunnelled: u64,
    /// Link types in the order of first sight.
    pub link_types: Vec<u32>,
}

/// The whole analysis of one run.
#[derive(Debug)]
pub struct Pipeline {
    dissector: Dissector,
    connections: ConnectionTable,
    /// What the connections share.
    pub cx: Context,
    /// Counts of what was recorded.
    pub counts: CaptureCounts,
    last_time: i64,
}

/// The end of a run.
#[derive(Debug)]
pub struct Finished {
    /// One row per connection.
    pub connections: Connections,
    /// The budgets of each connection's RPCs.
    pub budgets: Vec<Budget>,
    /// Addresses by number.
    pub addresses: Vec<String>,
}

impl Pipeline {
    /// A run that keeps the tables `options` asks for.
    pub fn new(options: Options) -> Self {
        Self {
            dissector: Dissector::new(),
            connections: ConnectionTable::default(),
            cx: Context::new(options),
            counts: CaptureCounts::default(),
            last_time: i64::MIN,
        }
    }

    /// Takes the next packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        self.count(packet);
        let outcome = self.dissector.dissect(packet.link_type, packet.captured, packet.original_len, packet.time_ns);
        match outcome {
            Outcome::Tcp(ref segment) => {
                self.counts.tcp += 1;
                self.counts.tunnelled += u64::from(segment.tunnel.is_some());
                self.connections.segment(segment, packet.number, packet.time_ns, &mut self.cx);
            }
            Outcome::NotTcp(_) => self.counts.not_tcp += 1,
            Outcome::Fragment => self.counts.fragments += 1,
            Outcome::Malformed(malformed) => {
                self.counts.malformed += 1;
                note_malformed(&mut self.cx, malformed, packet);
            }
            Outcome::UnsupportedLink(_) => self.counts.unsupported_link += 1,
        }
    }

    #[inline]
    fn count(&mut self, packet: &Packet<'_>) {
        let counts = &mut self.counts;
        let time = packet.time_ns;
        counts.packets += 1;
        counts.bytes += u64::from(packet.original_len);
        counts.captured_bytes += packet.captured.len() as u64;
        counts.truncated += u64::from(packet.captured.len() < packet.original_len as usize);
        counts.time_steps_back += u64::from(time < self.last_time);
        self.last_time = time;
        if counts.first_time_ns.is_none_or(|first| time < first) {
            counts.first_time_ns = Some(time);
        }
        if counts.last_time_ns.is_none_or(|last| time > last) {
            counts.last_time_ns = Some(time);
        }
        if counts.link_types.last() != Some(&packet.link_type) && !counts.link_types.contains(&packet.link_type) {
            counts.link_types.push(packet.link_type);
        }
    }

    /// The capture is over.
    pub fn finish(self) -> (Finished, Context, CaptureCounts) {
        let Self { connections, mut cx, counts, .. } = self;
        let (connections, budgets, addresses) = connections.into_table(&mut cx);
        (Finished { connections, budgets, addresses }, cx, counts)
    }
}

#[cold]
fn note_malformed(cx: &mut Context, malformed: Malformed, packet: &Packet<'_>) {
    let text = if malformed.is_cut() {
        "packet is cut by the snaplen before its TCP payload"
    } else {
        "packet headers are malformed"
    };
    cx.problem(Layer::Packet, text, NO_CONNECTION, packet.number, packet.time_ns);
}
