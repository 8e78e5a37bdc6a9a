//! Counts new data. A flight begins when nothing is in flight, and lasts until all of it is acknowledged.

use crate::at::At;

use super::super::half::{Flight, Half};
use super::{Connection, MIXED};

const NOT_KNOWN: i64 = -1;
/// The shortest full segment: where the MSS is not known, the longest payload of small calls is none (heuristic: IPv6 carries
/// packets of 1,280 octets everywhere, RFC 8200 section 5).
const FULL: i64 = 1_200;

impl Connection {
    /// Counts the bytes from `start` to `end`, which `side` has not sent before. A new flight begins if nothing is in
    /// flight. An idle time before it that is longer than the retransmission timeout restarts the congestion window
    /// (`tcp_slow_start_after_idle_check`, include/net/tcp.h).
    #[inline]
    pub(super) fn count_new_data(&mut self, side: usize, start: i64, end: i64, at: At) {
        let near = self.transport.near_rtt[side].max(0);
        let segment = self.segment_size(side);
        let half = &mut self.halves[side];
        let known = half.known_acked(at.time, near);
        half.acks_reach_back = known.is_some();
        let known = known.unwrap_or(half.acked);
        if segment > 0 && known > half.acked_at_send {
            half.congestion.acknowledged(known - half.acked_at_send, segment);
        }
        half.acked_at_send = half.acked_at_send.max(known);
        let in_flight = (half.highest - half.acked_at_send).max(0);
        if in_flight == 0 {
            begin_flight(half, start, segment, near, at);
            self.transport.flights[side] = (start, None);
        } else if half.sent_short && end - start < segment && !half.sends_at_once {
            let early = !self.transport.near_is_bound[side] && is_unacknowledged(half, near, at);
            half.sent_early = half.sent_early.or(early.then_some((half.highest, at.time)));
        }
        self.transport.shut[side].end();
        half.echo_at_send = half.echo;
        half.highest = end;
        half.rtt.sent(end, at.time);
        half.undelivered.send(end, u32::try_from(end - start).unwrap_or(u32::MAX));
        half.sent.push(end, end - start, segment);
        half.sent_short = end - start < segment;
        let full = segment >= FULL && !half.sent_short && (end - start) % segment == 0;
        half.full_since = if full { half.full_since.or(Some(at.time - self.transport.queued[side])) } else { None };
        if segment > 0 {
            half.congestion.sent(in_flight + (end - start), segment);
        }
        half.last_data_time = at.time.max(half.last_data_time);
        half.last_data_packet = at.packet;
        half.retransmissions_since = 0;
    }
}

/// The sender cannot have known that its last bytes were acknowledged. Delays vary: an ACK may have reached it an eighth sooner
/// than the least round trip so far says, and at once where the capture point may have mixed packets. The capture may lack the
/// ACK: a later timestamp shows that the sender heard something meanwhile, and a delayed ACK may have come.
#[cold]
fn is_unacknowledged(half: &Half, near: i64, at: At) -> bool {
    let known = half.known_acked(at.time, near - near / 8);
    let heard = half.timestamps && half.echo != half.echo_at_send || half.awaits_a_delayed_ack(at.time, near);
    let came = near < MIXED && half.acked >= half.highest;
    known.is_some_and(|known| known < half.highest) && !heard && !came
}

fn begin_flight(half: &mut Half, start: i64, segment: i64, near: i64, at: At) {
    // bytes in a hole are not in the capture, and neither is their time
    let first = half.last_data_packet == 0 || start > half.highest;
    let idle = (at.time - half.last_data_time).max(0);
    half.flight = Flight {
        number: half.flight.number + 1,
        first_packet: at.packet,
        start_time: at.time,
        start,
        idle_before: if first { NOT_KNOWN } else { idle },
        window_before: half.congestion.bytes(segment),
    };
    half.congestion.flight_over();
    if first || segment == 0 {
        return;
    }
    if let Some(timeout) = half.rtt.retransmission_timeout(near)
        && idle > timeout
    {
        half.congestion.restart_after_idle(idle, timeout, segment);
    }
}
