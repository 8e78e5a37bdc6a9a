//! Counts what a sender does with its packets and frames. Each count costs no more than an addition.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::http2::frame::header::FrameType;
use crate::http2::frame::ping::Purpose;
use crate::store::tables::DirectionRow;

/// The length of the intervals of which the busy ones are counted: 10 ms, far above what a writer coalesces over and
/// far below the period of timers.
const INTERVAL: i64 = 10_000_000;
const SECOND: i64 = 1_000_000_000;

/// What a packet holds, as bits: frame types by number, and these.
mod content {
    pub const PING_ACK: u16 = 1 << 10;
    pub const PING: u16 = 1 << 11;
    pub const OTHER: u16 = 1 << 15;
    pub const SETTINGS: u16 = 1 << super::FrameType::SETTINGS.0;
    pub const WINDOW_UPDATE: u16 = 1 << super::FrameType::WINDOW_UPDATE.0;
    pub const ANY_PING: u16 = 1 << super::FrameType::PING.0 | PING | PING_ACK;
    /// Frames that carry nothing of an RPC.
    pub const CONTROL: u16 = SETTINGS | WINDOW_UPDATE | ANY_PING;
}

/// The counts of one sender.
#[derive(Debug, Serialize, Deserialize)]
pub struct Habits {
    /// Frames by type; the last entry counts types that RFC 9113 does not define.
    pub frames: [u32; FrameType::KNOWN + 1],
    /// What the packet being read holds so far.
    content: u16,
    /// The packet in which a message ended last.
    message_packet: u32,
    /// The interval in which a message ended last.
    interval: Interval<INTERVAL>,
    /// The second with the last packet that carried PINGs alone, or their acknowledgements.
    pings: Interval<SECOND>,
    /// The second with the last packet that carried WINDOW_UPDATE and nothing of an RPC.
    updates: Interval<SECOND>,
    row: DirectionRow,
}

/// The packets of some kind in the last interval with any, and the first of them.
#[derive(Debug, Serialize, Deserialize)]
struct Interval<const LENGTH: i64> {
    number: i64,
    packets: u32,
    first_packet: u32,
    first_time: i64,
}

impl<const LENGTH: i64> Default for Interval<LENGTH> {
    fn default() -> Self {
        Self { number: i64::MIN, packets: 0, first_packet: 0, first_time: 0 }
    }
}

impl<const LENGTH: i64> Interval<LENGTH> {
    /// Counts a packet that was ready at `at`; whether it is the first of an interval.
    fn add(&mut self, at: At) -> bool {
        let number = at.ready_time / LENGTH;
        let is_new = number != self.number;
        if is_new {
            *self = Self { number, packets: 0, first_packet: at.packet, first_time: at.time };
        }
        self.packets += 1;
        is_new
    }

    /// Keeps the number of packets with the first and the last one, at `at`, if no interval had as many.
    fn keep_most(&self, at: At, most: &mut u32, first: (&mut u32, &mut i64), last: (&mut u32, &mut i64)) {
        if self.packets > *most {
            *most = self.packets;
            (*first.0, *first.1) = (self.first_packet, self.first_time);
            (*last.0, *last.1) = (at.packet, at.time);
        }
    }
}

impl Default for Habits {
    fn default() -> Self {
        let row = DirectionRow { first_message_time_ns: -1, last_message_time_ns: -1, ..DirectionRow::default() };
        let frames = Default::default();
        let (interval, pings, updates) = (Interval::default(), Interval::default(), Interval::default());
        Self { frames, content: 0, message_packet: 0, interval, pings, updates, row }
    }
}

impl Habits {
    /// A packet begins; `inside` is the type of the frame that it continues, unknown types for other contents. Of a packet
    /// that the snaplen cuts it is not known what else it holds.
    #[inline]
    pub fn packet_begins(&mut self, inside: Option<FrameType>, is_cut: bool) {
        self.content = inside.map_or(0, bit) | if is_cut { content::OTHER } else { 0 };
    }

    /// A whole packet begins, and with it a frame.
    #[inline]
    pub fn packet_begins_with_frame(&mut self) {
        self.content = 0;
    }

    /// A frame begins in the packet.
    #[inline]
    pub fn frame_begins(&mut self, kind: FrameType) {
        self.content |= bit(kind);
    }

    /// Bytes that are no frame are in the packet: the preface.
    pub fn other_content(&mut self) {
        self.content |= content::OTHER;
    }

    /// A frame is whole.
    #[inline]
    pub fn frame_ends(&mut self, kind: FrameType) {
        if let Some(count) = self.frames.get_mut(kind.index()) {
            *count += 1;
        }
    }

    /// The packet is read: a control packet holds nothing of an RPC.
    #[inline]
    pub fn packet_ends(&mut self, at: At) {
        self.row.payload_packets += 1;
        if self.content & !content::CONTROL == 0 && self.content != 0 {
            self.control_packet(at);
        }
    }

    fn control_packet(&mut self, at: At) {
        let (row, holds) = (&mut self.row, |bits| u32::from(self.content & bits != 0));
        row.control_packets += 1;
        row.ping_packets += holds(content::PING);
        row.ping_ack_packets += holds(content::PING_ACK);
        row.window_update_packets += holds(content::WINDOW_UPDATE);
        row.settings_packets += holds(content::SETTINGS);
        if self.content & (content::PING | content::PING_ACK) != 0 {
            self.pings.add(at);
            let first = (&mut row.dense_ping_first_packet, &mut row.dense_ping_first_time_ns);
            let last = (&mut row.dense_ping_last_packet, &mut row.dense_ping_last_time_ns);
            self.pings.keep_most(at, &mut row.dense_pings, first, last);
        }
        if self.content & content::WINDOW_UPDATE != 0 {
            self.updates.add(at);
            let first = (&mut row.dense_update_first_packet, &mut row.dense_update_first_time_ns);
            let last = (&mut row.dense_update_last_packet, &mut row.dense_update_last_time_ns);
            self.updates.keep_most(at, &mut row.dense_updates, first, last);
        }
    }

    /// The payload of a header frame.
    #[inline]
    pub fn header_block(&mut self, bytes: usize) {
        self.row.header_block_bytes += bytes as u64;
    }

    /// A message of `length` bytes is whole.
    #[inline]
    pub fn message(&mut self, length: u32, at: At) {
        let row = &mut self.row;
        row.messages += 1;
        row.message_bytes += u64::from(length);
        row.longest_message_bytes = row.longest_message_bytes.max(length);
        if row.messages == 1 {
            row.first_message_time_ns = at.ready_time;
        }
        row.last_message_time_ns = at.ready_time;
        if self.message_packet != at.packet {
            self.message_packet = at.packet;
            row.message_packets += 1;
            row.busy_intervals += u32::from(self.interval.add(at));
            let first = (&mut row.dense_first_packet, &mut row.dense_first_time_ns);
            let last = (&mut row.dense_last_packet, &mut row.dense_last_time_ns);
            self.interval.keep_most(at, &mut row.dense_packets, first, last);
        }
    }

    /// The acknowledgement of a PING.
    pub fn ping_ack(&mut self) {
        self.content |= content::PING_ACK;
        self.row.ping_acks += 1;
    }

    /// A PING.
    pub fn ping(&mut self, purpose: Purpose) {
        self.content |= content::PING;
        self.row.pings += 1;
        match purpose {
            Purpose::Bdp => self.row.bdp_pings += 1,
            Purpose::Keepalive => self.row.keepalive_pings += 1,
            Purpose::Drain => self.row.drain_pings += 1,
            Purpose::Rtt | Purpose::Unknown => {}
        }
    }

    /// Frames that carry a part of an RPC, so far.
    pub fn rpc_frames(&self) -> u32 {
        let [data, headers, ..] = self.frames;
        data.wrapping_add(headers)
    }

    /// Begins to count anew.
    pub fn begin_interval(&mut self) {
        *self = Self { content: self.content, message_packet: self.message_packet, ..Self::default() };
    }

    /// The counts as a row.
    pub fn row(&self) -> DirectionRow {
        let count = |kind: FrameType| self.frames[kind.index()];
        DirectionRow {
            data_frames: count(FrameType::DATA),
            header_frames: count(FrameType::HEADERS) + count(FrameType::CONTINUATION) + count(FrameType::PUSH_PROMISE),
            window_updates: count(FrameType::WINDOW_UPDATE),
            settings: count(FrameType::SETTINGS),
            resets: count(FrameType::RST_STREAM),
            ..self.row
        }
    }
}

#[inline]
fn bit(kind: FrameType) -> u16 {
    if kind.is_known() { 1 << kind.0 } else { content::OTHER }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_packet_with_control_frames_alone_is_a_control_packet() {
        let mut habits = Habits::default();
        for kinds in [&[FrameType::WINDOW_UPDATE, FrameType::PING][..], &[FrameType::WINDOW_UPDATE, FrameType::DATA]] {
            habits.packet_begins(None, false);
            for &kind in kinds {
                habits.frame_begins(kind);
                habits.frame_ends(kind);
                if kind == FrameType::PING {
                    habits.ping(Purpose::Bdp);
                }
            }
            habits.packet_ends(At::new(1, 0));
        }
        let row = habits.row();
        assert_eq!((row.payload_packets, row.control_packets), (2, 1));
        assert_eq!((row.ping_packets, row.ping_ack_packets, row.window_update_packets), (1, 0, 1));
        assert_eq!((row.window_updates, row.data_frames, row.bdp_pings), (2, 1, 1));
    }

    #[test]
    fn the_second_with_most_updates_and_pings() {
        let mut habits = Habits::default();
        for (packet, time) in
            [(1, 0), (2, 999 * MS), (3, 1_000 * MS), (4, 1_001 * MS), (5, 1_999 * MS), (6, 2_000 * MS)]
        {
            habits.packet_begins(None, false);
            habits.frame_begins(FrameType::WINDOW_UPDATE);
            if packet == 5 {
                habits.frame_begins(FrameType::PING);
                habits.ping_ack();
            }
            habits.packet_ends(At::new(packet, time));
        }
        let row = habits.row();
        assert_eq!((row.dense_updates, row.dense_update_first_packet, row.dense_update_last_packet), (3, 3, 5));
        assert_eq!((row.dense_pings, row.dense_ping_first_packet, row.dense_ping_last_packet), (1, 5, 5));
        assert_eq!((row.dense_update_first_time_ns, row.dense_update_last_time_ns), (1_000 * MS, 1_999 * MS));
    }

    #[test]
    fn a_packet_that_continues_data_is_none() {
        let mut habits = Habits::default();
        habits.packet_begins(Some(FrameType::DATA), false);
        habits.frame_begins(FrameType::PING);
        habits.packet_ends(At::new(1, 0));
        habits.packet_begins(None, false); // the beginning of a frame header: not known what it is
        habits.packet_ends(At::new(1, 0));
        assert_eq!((habits.row().payload_packets, habits.row().control_packets), (2, 0));
    }

    #[test]
    fn messages_of_one_packet_travel_together() {
        let mut habits = Habits::default();
        for (packet, time) in [(1, 0), (1, 0), (2, 9 * MS), (3, 10 * MS)] {
            habits.message(100, At::new(packet, time));
        }
        let row = habits.row();
        assert_eq!((row.messages, row.message_bytes, row.message_packets, row.busy_intervals), (4, 400, 3, 2));
        assert_eq!((row.first_message_time_ns, row.last_message_time_ns), (0, 10 * MS));
        assert_eq!((row.dense_packets, row.dense_first_packet, row.dense_last_packet), (2, 1, 2));
        assert_eq!((row.dense_first_time_ns, row.dense_last_time_ns), (0, 9 * MS));
    }
}
