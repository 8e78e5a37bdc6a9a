//! Measures TLS that is not decrypted: when records were sent, and who was silent between them.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::store::tables::RecordRow;
use crate::tls::Event;

/// Silences between records of one side shorter than this are its own pace: 1 ms, as in `waits`.
const SHORTEST: i64 = 1_000_000;

/// Silences that one side ended.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Silences {
    count: u32,
    total: i64,
    longest: i64,
    since: i64,
    packets: (u32, u32),
}

impl Silences {
    fn add(&mut self, from: At, to: At, ns: i64) {
        self.count += 1;
        self.total = self.total.saturating_add(ns);
        if ns > self.longest || self.count == 1 {
            (self.longest, self.since) = (ns, from.ready_time);
            self.packets = (from.ready_packet, to.packet);
        }
    }
}

/// The records of one side.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Sent {
    records: u64,
    bytes: u64,
    longest: u32,
    /// After a record of the other side.
    answers: Silences,
    /// After one of its own.
    pauses: Silences,
}

/// The records of a connection behind its handshake.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// The handshake is over.
    open: bool,
    last: Option<(usize, At)>,
    sides: [Sent; 2],
}

impl Timing {
    /// Takes an event of the session about a record whose last byte is at `at`.
    pub fn take(&mut self, event: &Event<'_, At>, at: At) {
        match *event {
            Event::HandshakeComplete => self.open = true,
            Event::Record { side, length, first } if self.open => self.record(side, length, first, at),
            _ => {}
        }
    }

    /// Begins to count anew.
    pub fn begin_interval(&mut self) {
        self.sides = Default::default();
    }

    /// Bytes are missing: what was sent meanwhile is not known.
    pub fn doubt(&mut self) {
        self.last = None;
    }

    fn record(&mut self, side: usize, length: usize, first: At, at: At) {
        let before = self.last.replace((side, at));
        let Some(sent) = self.sides.get_mut(side) else { return };
        sent.records += 1;
        sent.bytes = sent.bytes.saturating_add(length as u64);
        sent.longest = sent.longest.max(u32::try_from(length).unwrap_or(u32::MAX));
        let Some((sender, end)) = before else { return };
        let ns = first.time.saturating_sub(end.ready_time).max(0);
        if sender != side {
            sent.answers.add(end, first, ns);
        } else if ns >= SHORTEST {
            sent.pauses.add(end, first, ns);
        }
    }

    /// The rows of the client and of the server.
    pub fn rows(&self, connection: u32, client: usize) -> [RecordRow; 2] {
        [(0, client), (1, 1 - client.min(1))].map(|(direction, side)| {
            let sent = self.sides.get(side).copied().unwrap_or_default();
            RecordRow {
                connection,
                direction,
                records: sent.records,
                bytes: sent.bytes,
                longest: sent.longest,
                answers: sent.answers.count,
                answer_ns: sent.answers.total,
                longest_answer_ns: sent.answers.longest,
                answer_time_ns: sent.answers.since,
                answer_from_packet: sent.answers.packets.0,
                answer_to_packet: sent.answers.packets.1,
                pauses: sent.pauses.count,
                pause_ns: sent.pauses.total,
                longest_pause_ns: sent.pauses.longest,
                pause_time_ns: sent.pauses.since,
                pause_from_packet: sent.pauses.packets.0,
                pause_to_packet: sent.pauses.packets.1,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn record(timing: &mut Timing, side: usize, packet: u32, ms: i64) {
        let first = At::new(packet, ms * MS);
        timing.take(&Event::Record { side, length: 100 + packet as usize, first }, At::new(packet, ms * MS));
    }

    #[test]
    fn silences_belong_to_the_side_that_ends_them() {
        let mut timing = Timing::default();
        record(&mut timing, 0, 1, 0); // the client's Finished
        timing.take(&Event::HandshakeComplete, At::new(1, 0));
        for (side, packet, ms) in [(0, 2, 10), (1, 3, 40), (1, 4, 40), (1, 5, 45), (0, 6, 145), (1, 7, 146)] {
            record(&mut timing, side, packet, ms);
        }
        let [client, server] = timing.rows(3, 0);
        assert_eq!((client.records, client.bytes, client.longest), (2, 208, 106));
        assert_eq!((client.answers, client.answer_ns, client.pauses), (1, 100 * MS, 0));
        assert_eq!((client.answer_from_packet, client.answer_to_packet), (5, 6));
        assert_eq!((server.records, server.answers, server.answer_ns), (4, 2, 31 * MS));
        assert_eq!((server.longest_answer_ns, server.answer_time_ns), (30 * MS, 10 * MS));
        assert_eq!((server.pauses, server.pause_ns, server.pause_from_packet), (1, 5 * MS, 4));
        let [other, _] = timing.rows(3, 1);
        assert_eq!(other.records, 4, "the client is the other side");
    }

    #[test]
    fn what_is_missing_ends_no_silence() {
        let mut timing = Timing { open: true, ..Timing::default() };
        record(&mut timing, 0, 1, 0);
        timing.doubt();
        record(&mut timing, 1, 3, 500);
        assert_eq!(timing.rows(0, 0)[1].answers, 0);
    }
}
