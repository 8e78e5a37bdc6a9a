//! One sender: its parser, its HPACK table, its settings and its connection window.

use serde::{Deserialize, Serialize};

use std::collections::VecDeque;

use crate::at::At;
use crate::http2::frame::boundary_search::Search;
use crate::http2::frame::data::Remaining;
use crate::http2::frame::header::{FrameHeader, FrameType, HEADER_LEN};
use crate::http2::frame::settings::Settings;
use crate::http2::hpack::Decoder;
use crate::http2::observe::habits::Habits;
use crate::http2::observe::implementation::Implementation;
use crate::limits;
use crate::state_fields;

use super::application::Application;
use super::seen_blocks::SeenBlocks;
use super::used_up::UsedUp;

/// What the next byte of a direction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::http2) enum State {
    /// Part of the direction's first bytes, before the protocol is known.
    Opening,
    /// The body of an HTTP/1.1 request that asks for an upgrade.
    Http1Body,
    /// Part of an HTTP/1.1 message.
    Http1,
    /// Part of a frame header.
    Header,
    /// Payload of a DATA frame.
    Data,
    /// Payload of a frame that is kept whole.
    Control,
    /// Payload that is not read.
    Skip(u32),
    /// Somewhere in a frame: the boundary is searched.
    Lost,
    /// Not HTTP/2.
    Foreign,
}

/// A header block that goes on in CONTINUATION frames.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::http2) struct OpenBlock {
    pub(in crate::http2) stream: u32,
    pub(in crate::http2) end_stream: bool,
    /// The block of a PUSH_PROMISE: decoded for the table's sake alone.
    pub(in crate::http2) promise: bool,
    pub(in crate::http2) first: At,
    pub(in crate::http2) octets: Vec<u8>,
}

/// A WINDOW_UPDATE as seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credit {
    /// Capture time.
    pub time: i64,
    /// The stream, 0 for the connection.
    pub stream: u32,
    /// The increment.
    pub increment: u32,
}

/// A GOAWAY as seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoawaySeen {
    /// Streams above this were never processed.
    pub last_stream: u32,
    /// The error code.
    pub code: u32,
    /// When it was sent, nanoseconds since the epoch.
    pub time: i64,
}

/// One sender.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Side<A: Application> {
    pub(in crate::http2) state: State,
    pub(in crate::http2) head: [u8; HEADER_LEN],
    #[serde(deserialize_with = "state_fields::below::<HEADER_LEN, _, _>")]
    pub(in crate::http2) head_have: usize,
    /// The frame that is being read, and its first byte.
    pub(in crate::http2) frame: FrameHeader,
    pub(in crate::http2) frame_first: At,
    /// The last frame that breaks the protocol or is of an unknown type: its length may be none.
    pub(in crate::http2) doubtful: Option<FrameHeader>,
    pub(in crate::http2) data: Remaining,
    pub(in crate::http2) slot: u32,
    /// The slot of the stream whose DATA came last.
    pub(crate) data_slot: u32,
    /// A control frame cut over segments.
    pub(in crate::http2) kept: Vec<u8>,
    pub(in crate::http2) block: Option<OpenBlock>,
    /// Bytes kept while the protocol, or a frame boundary, is not known.
    pub(in crate::http2) search: Option<Box<Search>>,
    /// Kept bytes to be read again from an offset on.
    pub(in crate::http2) replay: Option<(Box<Search>, usize)>,
    pub(in crate::http2) hpack: Decoder<A::Fields>,
    #[serde(skip)]
    pub(in crate::http2) seen_blocks: SeenBlocks<A::Summary>,
    /// Settings announced and acknowledged: they bind the peer's frames.
    pub in_force: Settings,
    /// Settings announced last.
    pub announced: Settings,
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::PENDING_SETTINGS }, _, _>")]
    pub(in crate::http2) pending: VecDeque<Settings>,
    /// The first SETTINGS of this side.
    pub settings_at: Option<At>,
    /// The peer's first PING that this side has not acknowledged.
    pub pinged: Option<At>,
    /// WINDOW_UPDATE increments for the connection less DATA sent by this side.
    pub connection_credit: i64,
    /// The largest `connection_credit` so far: the size of the window.
    pub(in crate::http2) most_connection_credit: i64,
    /// The smallest `connection_credit` so far. Where it is negative, the initial window was at least that large.
    pub(in crate::http2) least_connection_credit: i64,
    /// The smallest credit of a stream that was opened in the capture, with the same meaning.
    pub(in crate::http2) least_stream_credit: i64,
    /// When its last DATA began that took some of its windows, nanoseconds; what is used up now has been so since then.
    pub data_sent: i64,
    /// What its stops prove of the connection's window when its beginning is not in the capture.
    pub(in crate::http2) used_up: UsedUp,
    /// Messages begun and not whole.
    pub unfinished_messages: u32,
    /// The stream whose DATA or HEADERS came last.
    pub last_stream: u32,
    /// Counts the gaps in this direction: bytes of streams may have been in them.
    pub gaps: u32,
    /// The packet up to which bytes of this direction were lost or skipped, the latest gap's end.
    lost_until: u32,
    /// Credit of the peer that may not have reached this side yet, when it is far from the capture point.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::RECENT_CREDITS }, _, _>")]
    pub recent_credits: VecDeque<Credit>,
    /// The last frame of the peer that enlarged a window of this side.
    pub credited_at: Option<At>,
    /// When the peer last enlarged the connection's window.
    pub connection_credited: i64,
    /// GOAWAY sent by this side.
    pub goaway: Option<GoawaySeen>,
    /// How this side divides its frames among packets, counted.
    pub habits: Habits,
    /// What the frames say about the implementation.
    pub implementation: Implementation,
}

impl<A: Application> std::fmt::Debug for Side<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Side").field("state", &self.state).field("frame", &self.frame).finish_non_exhaustive()
    }
}

impl<A: Application> Side<A> {
    /// Keeps the classes of HPACK's static table where `like` does.
    pub fn share_static_table(&mut self, like: &Decoder<A::Fields>) {
        self.hpack.share_static_table(like);
    }

    /// Overwrites the values in its HPACK table.
    pub fn forget_values(&mut self) {
        self.hpack.forget_values();
    }

    /// Remembers credit that takes `near` nanoseconds there and back to reach this side.
    pub(in crate::http2) fn remember_credit(&mut self, credit: Credit, near: i64) {
        let over = credit.time.saturating_sub(near);
        while self.recent_credits.front().is_some_and(|old| old.time <= over)
            || self.recent_credits.len() >= limits::RECENT_CREDITS
        {
            self.recent_credits.pop_front();
        }
        self.recent_credits.push_back(credit);
    }

    /// Credit for a stream (0: the connection) that was captured after `time`.
    pub fn credit_after(&self, stream: u32, time: i64) -> i64 {
        let late = self.recent_credits.iter().filter(|credit| credit.stream == stream && credit.time > time);
        late.map(|credit| i64::from(credit.increment)).sum()
    }

    /// Reads what the next packets will; see [`Connection::touch`](crate::tcp::connection::Connection::touch).
    #[inline]
    pub(in crate::http2) fn touch(&self) -> u64 {
        let frames = u64::from(self.habits.rpc_frames() ^ self.last_stream ^ self.unfinished_messages);
        let credit = self.connection_credit ^ self.frame_first.time;
        frames ^ credit as u64 ^ self.hpack.table_changes() ^ self.seen_blocks.touch()
    }

    /// The type of the frame read last, or being read.
    pub(in crate::http2) fn last_kind(&self) -> FrameType {
        self.frame.kind()
    }

    /// The type of the frame that the next byte continues; none between frames.
    #[inline]
    pub(in crate::http2) fn inside(&self) -> Option<FrameType> {
        match self.state {
            State::Header if self.head_have == 0 => None,
            State::Opening => None, // its bytes are read again when they tell what they are
            State::Data | State::Control | State::Skip(_) => Some(self.frame.kind()),
            _ => Some(FrameType(u8::MAX)),
        }
    }

    pub(in crate::http2) fn new(hpack: &Decoder<A::Fields>, begun_late: bool) -> Self {
        let mut hpack = hpack.new_like();
        if begun_late {
            hpack.mark_begun_late();
        }
        Self {
            state: State::Opening,
            head: [0; HEADER_LEN],
            head_have: 0,
            frame: FrameHeader::default(),
            frame_first: At::default(),
            doubtful: None,
            data: Remaining::default(),
            slot: super::streams::NONE,
            data_slot: super::streams::NONE,
            kept: Vec::new(),
            block: None,
            search: None,
            replay: None,
            hpack,
            seen_blocks: SeenBlocks::default(),
            in_force: Settings::default(),
            announced: Settings::default(),
            pending: VecDeque::new(),
            settings_at: None,
            pinged: None,
            connection_credit: 0,
            most_connection_credit: 0,
            least_connection_credit: 0,
            least_stream_credit: 0,
            data_sent: 0,
            used_up: UsedUp::default(),
            unfinished_messages: 0,
            last_stream: 0,
            gaps: 0,
            lost_until: 0,
            recent_credits: VecDeque::new(),
            credited_at: None,
            connection_credited: 0,
            goaway: None,
            habits: Habits::default(),
            implementation: Implementation::Unknown,
        }
    }

    #[inline]
    pub(in crate::http2) fn owes(&self) -> bool {
        self.unfinished_messages > 0
            || self.block.is_some()
            || self.head_have > 0
            || matches!(self.state, State::Data | State::Control | State::Skip(_))
    }

    /// Bytes owed as far as they are known: the rest of the frame that is being read.
    pub fn owed_in_frame(&self) -> u64 {
        match self.state {
            State::Header if self.head_have > 0 => (HEADER_LEN - self.head_have) as u64,
            State::Data => u64::from(self.data.total()),
            State::Control => u64::from(self.frame.length()).saturating_sub(self.kept.len() as u64),
            State::Skip(left) => u64::from(left),
            _ => 0,
        }
    }

    /// Takes the buffered bytes out of which no frame was read, and gives their number.
    pub(in crate::http2) fn buffered(&mut self) -> u64 {
        self.search.take().map_or(0, |search| search.len() as u64)
    }

    /// The position of the first byte of the frame that began last.
    pub fn frame_first(&self) -> At {
        self.frame_first
    }

    /// Payload bytes of the DATA frame whose first `read` bytes these are; `None` when they are not the first.
    pub(crate) fn frame_from(&self, read: usize) -> Option<u32> {
        let length = self.frame.length();
        (self.data.data as usize + read == length as usize).then_some(length)
    }

    /// The peer has announced, and may come to be answered with, a table of `bytes`.
    pub(in crate::http2) fn announce_table_size(&mut self, bytes: u32) {
        self.hpack.announce_max_size_setting(bytes);
    }

    /// The peer lets this side's encoder use a table of `bytes`.
    pub fn allow_table_size(&mut self, bytes: u32) {
        self.hpack.set_max_size_setting(bytes);
    }

    /// Queues announced settings until the peer acknowledges them; `false` when too many wait.
    pub(in crate::http2) fn announce(&mut self, settings: Settings, at: At) -> bool {
        self.settings_at.get_or_insert(at);
        self.announced = settings;
        if self.pending.len() >= limits::PENDING_SETTINGS {
            return false;
        }
        self.pending.push_back(settings);
        true
    }

    /// The newest announced settings, on which a further frame builds.
    pub(in crate::http2) fn newest(&self) -> Settings {
        self.pending.back().copied().unwrap_or(self.in_force)
    }

    /// Whether frames are being read, and no byte of a stream can have been lost that was opened when there were
    /// `gaps` gaps, by a frame in packet `opened`.
    pub fn is_read_whole(&self, gaps: u32, opened: u32) -> bool {
        !self.is_searching() && !self.gap_touches(gaps, opened)
    }

    /// Whether a gap may hold bytes of a stream that was opened when there were `gaps` gaps, by a frame in packet
    /// `opened`. What was lost up to an earlier packet than that is not the stream's.
    #[inline]
    pub fn gap_touches(&self, gaps: u32, opened: u32) -> bool {
        self.gaps != gaps && opened <= self.lost_until
    }

    /// Whether the next frame boundary is not known.
    pub fn is_searching(&self) -> bool {
        matches!(self.state, State::Lost | State::Foreign) || self.search.is_some()
    }

    /// Forgets the frame that is being read: the boundary is lost at packet `packet`, with header blocks in `missing`
    /// bytes perhaps.
    pub(in crate::http2) fn lose(&mut self, missing: u64, packet: u32) {
        let unread = self.kept.len() + self.block.as_ref().map_or(0, |block| block.octets.len());
        self.state = State::Lost;
        self.head_have = 0;
        self.kept.clear();
        self.block = None;
        self.unfinished_messages = 0;
        self.pinged = None; // its acknowledgement may be among them
        self.gaps = self.gaps.wrapping_add(1);
        self.lost_until = self.lost_until.max(packet);
        self.hpack.mark_hole(missing.saturating_add(unread as u64));
    }

    /// A boundary was found after `skipped` bytes, the last of them in packet `until`, which may have been of any stream
    /// that opened by then.
    pub(in crate::http2) fn found_boundary(&mut self, skipped: usize, until: u32) {
        self.state = State::Header;
        if self.gaps > 0 {
            self.hpack.mark_hole(skipped as u64);
        }
        if skipped > 0 {
            self.lost_until = self.lost_until.max(until);
            self.gaps = self.gaps.wrapping_add(1);
        }
    }
}
