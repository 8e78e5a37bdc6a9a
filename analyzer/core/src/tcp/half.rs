//! One sender of a TCP connection (RFC 9293): its sequence numbers, what its peer acknowledged, its flights, and an
//! estimate of its congestion window.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::limits;
use crate::packet::{Segment, TcpFlags};
use crate::state_fields::{self, Steps};

use super::congestion::CongestionWindow;
use super::duplicate::Recent;
use super::path_delay::PathDelay;
use super::queue::{FILLS, Queue};
use super::reassembly::OutOfOrder;
use super::rtt::Rtt;
pub use super::rtt::SHORTEST_DELAYED_ACK;
use super::sent_again::SentAgains;
use super::undelivered::Undelivered;

/// A capture point this close to a sender, nanoseconds there and back, sees what the sender sees: 200 microseconds.
pub const NEAR: i64 = 200_000;
/// An acknowledgement of a sender's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Capture time.
    pub time: i64,
    /// All bytes before this offset are acknowledged.
    pub offset: i64,
    /// The packet.
    pub packet: u32,
}

impl Steps for Ack {
    fn step_from(self, before: Self) -> Self {
        Self {
            time: self.time.step_from(before.time),
            offset: self.offset.step_from(before.offset),
            packet: self.packet.step_from(before.packet),
        }
    }

    fn step_to(self, before: Self) -> Self {
        Self {
            time: self.time.step_to(before.time),
            offset: self.offset.step_to(before.offset),
            packet: self.packet.step_to(before.packet),
        }
    }
}

/// The last [`limits::RECENT_ACKS`] that acknowledged something new.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Acks {
    #[serde(with = "state_fields::steps")]
    ring: [Ack; limits::RECENT_ACKS],
    count: usize,
}

impl Default for Acks {
    fn default() -> Self {
        Self { ring: [Ack::default(); limits::RECENT_ACKS], count: 0 }
    }
}

impl Acks {
    /// Remembers one.
    #[inline]
    pub fn push(&mut self, ack: Ack) {
        self.ring[self.count % limits::RECENT_ACKS] = ack;
        self.count += 1;
    }

    /// The newest captured at or before `time`; `None` when the ring does not reach back that far.
    pub fn at(&self, time: i64) -> Option<Ack> {
        self.newest_first().find(|ack| ack.time <= time)
    }

    /// The same without ACKs of bytes behind `offset`, which the capture has too early.
    pub fn up_to(&self, offset: i64, time: i64) -> Option<Ack> {
        self.newest_first().find(|ack| ack.time <= time && ack.offset <= offset)
    }

    /// Whether no ACK was forgotten.
    pub fn is_whole(&self) -> bool {
        self.count <= limits::RECENT_ACKS
    }

    /// The oldest kept that acknowledged all bytes before `offset`.
    pub fn first_of_all(&self, offset: i64) -> Option<Ack> {
        self.newest_first().take_while(|ack| ack.offset >= offset).last()
    }

    /// From the newest to the oldest kept.
    pub fn newest_first(&self) -> impl Iterator<Item = Ack> {
        let kept = self.count.min(limits::RECENT_ACKS);
        (0..kept).map(|back| self.ring[(self.count - 1 - back) % limits::RECENT_ACKS])
    }
}

/// The last [`limits::RECENT_ACKS`] receive windows of a host, for a sender far from the capture point.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Windows {
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::RECENT_ACKS }, _, _>")]
    newest_last: VecDeque<(i64, Option<u64>)>,
}

impl Windows {
    /// Remembers a window captured at `time`.
    pub fn push(&mut self, time: i64, window: Option<u64>) {
        if self.newest_last.len() >= limits::RECENT_ACKS {
            self.newest_last.pop_front();
        }
        self.newest_last.push_back((time, window));
    }

    /// The newest captured at or before `time`; `None` when that is not known.
    pub fn at(&self, time: i64) -> Option<u64> {
        self.newest_last.iter().rev().find(|&&(captured, _)| captured <= time)?.1
    }
}

/// A data packet as sent.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Mark {
    /// Offset behind its last byte.
    end: i64,
    /// Segments of this sender up to and with this packet.
    segments: i64,
}

impl Steps for Mark {
    fn step_from(self, before: Self) -> Self {
        Self { end: self.end.step_from(before.end), segments: self.segments.step_from(before.segments) }
    }

    fn step_to(self, before: Self) -> Self {
        Self { end: self.end.step_to(before.end), segments: self.segments.step_to(before.segments) }
    }
}

/// The last [`limits::RECENT_SENT`] packets with new data. Linux counts its window in segments, whatever their length.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sent {
    #[serde(with = "state_fields::steps")]
    ring: [Mark; limits::RECENT_SENT],
    count: usize,
    segments: i64,
}

impl Default for Sent {
    fn default() -> Self {
        Self { ring: [Mark::default(); limits::RECENT_SENT], count: 0, segments: 0 }
    }
}

impl Sent {
    /// Remembers a packet of `length` new bytes up to `end`; one recorded before it was cut is several segments.
    #[inline]
    pub fn push(&mut self, end: i64, length: i64, segment: i64) {
        self.segments += if length <= segment || segment <= 0 { 1 } else { (length + segment - 1) / segment };
        self.ring[self.count % limits::RECENT_SENT] = Mark { end, segments: self.segments };
        self.count += 1;
    }

    /// Segments sent behind `offset`; `None` when the ring does not reach back that far.
    pub fn behind(&self, offset: i64) -> Option<i64> {
        let kept = self.count.min(limits::RECENT_SENT);
        let mut marks = (0..kept).map(|back| self.ring[(self.count - 1 - back) % limits::RECENT_SENT]);
        match marks.find(|mark| mark.end <= offset) {
            Some(mark) => Some(self.segments - mark.segments),
            None => (self.count <= limits::RECENT_SENT).then_some(self.segments),
        }
    }
}

/// Bytes sent one after the other while others were unacknowledged, since the sender last had nothing in flight.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Flight {
    /// Counts the flights of this sender.
    pub number: u32,
    /// The first packet.
    pub first_packet: u32,
    /// Its time.
    pub start_time: i64,
    /// Offset of its first byte.
    pub start: i64,
    /// Since the sender's last data before it, nanoseconds; negative for the connection's first.
    pub idle_before: i64,
    /// The estimated congestion window before the idle time, bytes.
    pub window_before: i64,
}

/// A sender. Offsets count its payload bytes from 0 and never wrap.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Half {
    /// The initial sequence number was seen (SYN).
    pub isn: Option<u32>,
    /// Any sequence number was seen.
    pub started: bool,
    next_seq: u32,
    /// Offset up to which bytes were delivered in order.
    pub next: i64,
    /// Highest offset sent.
    pub highest: i64,
    /// Offset of its FIN, which takes a sequence number of its own and is acknowledged too.
    pub fin: Option<i64>,
    /// Highest offset the peer acknowledged.
    pub acked: i64,
    /// What this sender knew to be acknowledged when it last sent new data.
    pub acked_at_send: i64,
    /// The kept ACKs give `acked_at_send`; otherwise it is too high.
    pub acks_reach_back: bool,
    /// Acknowledgements of this sender's bytes.
    pub acks: Acks,
    /// The last packet of the peer that acknowledged nothing new and announced a larger receive window.
    pub window_grew: Ack,
    /// The last packets with new data.
    pub sent: Sent,
    /// The last packet with new data was shorter than a full segment.
    pub sent_short: bool,
    /// Its last packet with new data came behind a hole, and so long behind a short segment that Nagle's algorithm may have held it.
    pub may_be_held: bool,
    /// Since when all its packets with new data were full segments, if the last one was: TCP sends a short one when it has no more.
    /// The time that the first of them was queued on its way to the capture point is taken off.
    pub full_since: Option<i64>,
    /// It sent new bytes behind a short segment that was not acknowledged: Nagle's algorithm is off.
    pub sends_at_once: bool,
    /// What is to prove that, until the next ACK: the offset behind the short segment, and when the new bytes came.
    pub sent_early: Option<(i64, i64)>,
    /// The timestamp that its last packet echoes (RFC 7323 section 3.2).
    pub echo: u32,
    /// The timestamp that its last packet with new data echoes.
    pub echo_at_send: u32,
    /// MSS option this sender announced: the longest segment it accepts.
    pub mss: Option<u16>,
    /// Window scale option this sender announced.
    pub window_scale: Option<u8>,
    /// The least and the highest time to live of its packets that are no RST, zeros before any.
    pub ttls: [u8; 2],
    /// The IPv4 identification of its last packet that is no RST.
    pub ip_id: Option<u16>,
    /// Its SYN permits its peer to report what comes behind a hole (RFC 2018 section 2).
    pub permits_reports: bool,
    /// Its SYN answered the other side's.
    pub answered_syn: bool,
    /// Receive window this sender announced last, bytes; `None` while the scale is not known.
    pub window: Option<u64>,
    /// Its windows before, while its peer is far from the capture point.
    pub windows: Windows,
    /// The sender uses timestamps, which take 12 octets of each segment (RFC 7323).
    pub timestamps: bool,
    /// The longest payload of one packet.
    pub longest_payload: u32,
    /// When the last hole was filled, and whether a retransmission filled it: nothing behind it was readable
    /// before.
    pub filled: Option<(At, bool)>,
    /// Segments that wait for a hole to be filled.
    pub out_of_order: Option<Box<OutOfOrder>>,
    /// To recognise packets recorded twice.
    pub recent: Recent,
    /// Round trip from the capture point to the peer and back, by this sender's data.
    pub rtt: Rtt,
    /// How much longer than the least its packets took to the capture point.
    pub delay: PathDelay,
    /// The queues in front of the capture point and behind it.
    pub path_queues: [Queue; 2],
    /// The current flight.
    pub flight: Flight,
    /// The estimated congestion window.
    pub congestion: CongestionWindow,
    /// When this sender last retransmitted, nanoseconds since the epoch.
    pub last_retransmission: i64,
    /// Time of the last new data, nanoseconds since the epoch.
    pub last_data_time: i64,
    /// Packet of the last new data, 0 before any.
    pub last_data_packet: u32,
    /// Retransmissions since the last new data, without those of bytes that the peer reports as received twice.
    pub retransmissions_since: u32,
    /// What it retransmitted.
    pub sent_again: SentAgains,
    /// Offset behind the last of its bytes that the peer reports behind a hole (RFC 2018).
    pub reported: i64,
    /// The first bytes that its peer does not acknowledge.
    pub undelivered: Undelivered,
    /// Packets of the connection since the peer acknowledged a hole.
    pub hole_patience: u32,
}

impl Half {
    /// Reads what the next packets will; see [`Connection::touch`](super::connection::Connection::touch).
    #[inline]
    pub fn touch(&self) -> u64 {
        let ack = |ahead: usize| self.acks.ring[(self.acks.count + ahead) % limits::RECENT_ACKS].time as u64;
        let sent = |ahead: usize| self.sent.ring[(self.sent.count + ahead) % limits::RECENT_SENT].end as u64;
        let rings = ack(0) ^ ack(3) ^ ack(6) ^ ack(9) ^ sent(0) ^ sent(4) ^ sent(8);
        let fields =
            self.next ^ self.highest ^ self.acked ^ self.flight.start ^ self.last_data_time ^ self.last_retransmission;
        let congestion = u64::from(self.congestion.assumed) ^ u64::from(self.longest_payload);
        let queues = self.delay.touch() ^ u64::from(self.path_queues[0].is_seen() ^ self.path_queues[1].is_seen());
        rings ^ fields as u64 ^ congestion ^ queues ^ self.rtt.min.unwrap_or(0) as u64 ^ self.recent.touch()
    }

    /// Remembers what the IP header of its packet says. A RST may be another host's.
    #[inline]
    pub fn note_header(&mut self, segment: &Segment<'_>) {
        if !segment.flags.contains(TcpFlags::RST) {
            let [least, most] = self.ttls;
            self.ttls = [if least == 0 { segment.ttl } else { least.min(segment.ttl) }, most.max(segment.ttl)];
            self.ip_id = segment.ip_id;
        }
    }

    /// Fixes the sequence number of offset 0.
    pub fn start(&mut self, first_byte: u32) {
        self.started = true;
        self.next_seq = first_byte;
    }

    /// Since its last bytes, in a segment that was not full, as much time has passed as an ACK of them may be put off.
    #[inline]
    pub fn paused_behind_a_short_segment(&self, now: i64) -> bool {
        self.sent_short && now - self.last_data_time >= SHORTEST_DELAYED_ACK
    }

    /// Whether the sender still waits for an ACK of a short segment, though a delayed one could have reached it; `near`
    /// is its round trip to the capture point, nanoseconds.
    pub fn awaits_a_delayed_ack(&self, now: i64, near: i64) -> bool {
        let round_trip = self.rtt.min.unwrap_or(0).saturating_add(near);
        self.sent_short && now - self.last_data_time >= SHORTEST_DELAYED_ACK.saturating_add(round_trip)
    }

    /// The offset of a sequence number, within half the sequence space of what is expected (RFC 9293 section 3.4).
    #[inline]
    pub fn offset(&self, seq: u32) -> i64 {
        self.next + i64::from(seq.wrapping_sub(self.next_seq) as i32)
    }

    /// As much of `offset`, which was acknowledged, as is payload.
    #[inline]
    pub fn payload_before(&self, offset: i64) -> i64 {
        self.fin.map_or(offset, |fin| offset.min(fin))
    }

    /// Bytes up to `offset` were delivered.
    #[inline]
    pub fn advance(&mut self, offset: i64) {
        let by = offset - self.next;
        self.next_seq = self.next_seq.wrapping_add(by as u32);
        self.next = offset;
    }

    /// The sequence number of offset 0.
    pub fn first_sequence(&self) -> u32 {
        self.next_seq.wrapping_sub(self.next as u32)
    }

    /// By how many bits this sender's windows are shifted, `None` while not known (RFC 7323 section 2.2): windows are
    /// scaled when both SYNs carry the option, and never in a SYN. Who answers a SYN with the option was offered it.
    pub fn window_shift(&self, peer: &Half, is_syn: bool) -> Option<u8> {
        match (self.isn.is_some(), self.window_scale, peer.isn.is_some(), peer.window_scale) {
            _ if is_syn => Some(0),
            (true, None, _, _) | (true, _, true, None) => Some(0),
            (true, Some(shift), true, Some(_)) => Some(shift),
            (true, Some(shift), false, _) if self.answered_syn => Some(shift),
            _ => None,
        }
    }

    /// Payload bytes of a full segment of this sender, from its peer's MSS option less the timestamp option; from the
    /// longest payload when the options were not seen; 0 if it is not known.
    pub fn segment_size(&self, peer: &Half) -> u32 {
        match peer.mss.or(self.mss) {
            Some(mss) => {
                let mss = self.mss.map_or(mss, |own| own.min(mss));
                u32::from(mss).saturating_sub(if self.timestamps { 12 } else { 0 })
            }
            // offload shows longer packets than the network carries
            None => self.longest_payload.min(1_448),
        }
    }

    /// Whether bytes before the offset `end`, sent at `time`, were behind so many of its own that these may have filled the path; so
    /// if that is not known.
    #[cold]
    pub fn fills_the_path(&self, end: i64, time: i64) -> bool {
        match self.acks.at(time) {
            Some(ack) => end.saturating_sub(ack.offset) > FILLS,
            None => !self.acks.is_whole() || end > FILLS,
        }
    }

    /// Since when it has had bytes to send all the time up to `now`, as far as full segments and what is in flight show: what it
    /// sends next may have waited behind them. `near` as in [`known_acked`](Self::known_acked).
    #[inline]
    pub fn sends_since(&self, now: i64, near: i64) -> Option<i64> {
        let since = self.full_since?;
        let acked = self.known_acked(now, near).unwrap_or(self.acked);
        (acked < self.highest).then_some(since)
    }

    /// The highest offset that the sender knew to be acknowledged at `time`, when its peer's packets reach it `near`
    /// nanoseconds after the capture point; `None` when the kept ACKs do not reach back.
    #[inline]
    pub fn known_acked(&self, time: i64, near: i64) -> Option<i64> {
        if near <= NEAR {
            return Some(self.acked);
        }
        match self.acks.at(time - near) {
            Some(ack) => Some(ack.offset),
            None => self.acks.is_whole().then_some(0), // no ACK had come: nothing is acknowledged
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_in_flight_are_counted_whatever_their_length() {
        let mut sent = Sent::default();
        sent.push(100, 100, 1_000);
        sent.push(3_100, 3_000, 1_000);
        sent.push(3_101, 1, 1_000);
        assert_eq!(sent.behind(0), Some(5));
        assert_eq!(sent.behind(100), Some(4));
        assert_eq!(sent.behind(3_101), Some(0));
        for n in 0..limits::RECENT_SENT as i64 {
            sent.push(4_000 + n, 1, 1_000);
        }
        assert_eq!(sent.behind(3_101), None, "forgotten");
    }
    #[test]
    fn the_sequence_number_of_offset_0_stays_known() {
        let mut half = Half::default();
        half.start(u32::MAX - 5);
        assert_eq!(half.first_sequence(), u32::MAX - 5);
        half.advance(5_000_000_000);
        assert_eq!(half.first_sequence(), u32::MAX - 5);
    }

    #[test]
    fn a_far_sender_knows_an_earlier_window() {
        let mut windows = Windows::default();
        windows.push(10, Some(1_000));
        windows.push(20, Some(500));
        windows.push(30, None);
        assert_eq!(
            (windows.at(9), windows.at(10), windows.at(29), windows.at(30)),
            (None, Some(1_000), Some(500), None)
        );
    }
}
