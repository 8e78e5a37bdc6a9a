//! Reads connections that have carried no payload, from the segments that were kept of them.

use crate::connection::shared::Shared;
use crate::connection::{CaptureEnd, Connection, Ended};
use crate::store::context::Context;
use crate::store::options::Options;
use crate::store::tables::{PacketRow, Packets};

use super::connection_opening::Opening;
use super::route::Place;
use super::shard::LINGER_PACKETS;

/// Reads openings of which nothing more is to come, or which are not over.
#[derive(Debug)]
pub struct Replay {
    cx: Context,
    shared: Shared,
}

impl Replay {
    /// Reads them as connections with these `ports` are read.
    pub fn new(ports: Vec<u16>) -> Self {
        let options = Options { ports, packets: true, ..Options::default() };
        Self { cx: Context::new(options), shared: Shared::default() }
    }

    /// The row of the opening's last packet; `None` when the connection was over before.
    pub fn last_packet(&mut self, opening: &Opening, number: u32) -> Option<PacketRow> {
        let (_, late) = self.read(opening, number, 0)?;
        let last = self.cx.packets.len().checked_sub(1).and_then(|last| self.cx.packets.get(last));
        last.filter(|row| late == 0 || opening.last_packet() == Some(row.packet))
    }

    /// The rows of its packets.
    pub fn packets(&mut self, opening: &Opening, number: u32) -> Option<Packets> {
        self.read(opening, number, 0).map(|_| std::mem::take(&mut self.cx.packets))
    }

    /// What is left of a connection that carried no payload until the capture's end, with the packets behind packet `cut`
    /// counted alone: none, if none came.
    pub fn end(&mut self, opening: &Opening, number: u32, cut: u32, end: CaptureEnd) -> Option<Ended> {
        let (connection, late) = self.read(opening, number, cut)?;
        let mut ended = connection.finish(false, end, &mut self.cx, &mut self.shared);
        ended.row.late_packets = late;
        Some(ended)
    }

    /// The connection after its opening, and packets that came after it was over (see [`Shard`](super::shard::Shard)).
    fn read(&mut self, opening: &Opening, number: u32, cut: u32) -> Option<(Connection, u32)> {
        self.cx.packets = Packets::default();
        let (mut due, mut late) = (u32::MAX, 0);
        let mut segments = opening.routed(number, Place::default()).peekable();
        let (route, first, at) = segments.peek()?;
        let mut connection =
            Connection::new(number, first, route.opens.unwrap_or_default(), *at, &mut self.cx, &mut self.shared);
        let mut is_counted = opening.first().packet <= cut;
        for (route, segment, at) in segments {
            if is_counted && at.packet > cut {
                connection.begin_interval(cut, &mut self.cx);
                connection.goes_on(at);
                is_counted = false;
            }
            if at.packet >= due {
                late += 1;
                continue;
            }
            connection.segment(route.side, &segment, at, &mut self.cx, &mut self.shared);
            if connection.is_finished() && due == u32::MAX {
                due = at.packet.saturating_add(LINGER_PACKETS);
            }
        }
        if is_counted && cut > 0 {
            connection.begin_interval(cut, &mut self.cx);
        }
        Some((connection, late))
    }
}
