//! One connection's bytes, cut into what is structure and what is not, as `http2::parser` cuts them: frame headers,
//! control frames field by field, header blocks, message prefixes. Only what is put into the edits is ever written; any
//! byte whose meaning is not certain is zero.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::at::At;
use crate::context::Delivered;
use crate::http2::data::Remaining;
use crate::http2::detect::{self, Opening};
use crate::http2::frame::{FrameHeader, FrameType, HEADER_LEN, flag, strip_padding};
use crate::http2::hpack::Decoder;
use crate::http2::late::{PROOFS, Probe};
use crate::http2::resync::Search;
use crate::limits;

use super::block::{self, Facts, NoMeaning};
use super::control;
use super::edits::Edits;
use super::messages::{Messages, put_beginnings};
use super::opening;
use super::replace::Replacer;
use super::tls::Records;

/// What all connections of a run share.
#[derive(Debug)]
pub(super) struct Shared {
    pub replacer: Replacer,
    pub hide_methods: bool,
    /// GOAWAY debug texts that are not shown.
    pub reasons: Vec<String>,
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Carries {
    /// No payload, or too little to tell.
    #[default]
    Nothing,
    /// HTTP/2 in the clear.
    Http2,
    /// TLS.
    Tls,
    /// Something else.
    Other,
}

/// What the next byte of a side is: the states of `http2::side`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening,
    Http1Body(u64),
    Header,
    Data,
    Control,
    Skip(u32),
    Lost,
    Foreign,
}

/// A header block that goes on in CONTINUATION frames.
#[derive(Debug, Default)]
struct OpenBlock {
    stream: u32,
    end_stream: bool,
    promise: bool,
    octets: Vec<u8>,
    /// Where its fragments are, and their lengths.
    pieces: Vec<(i64, usize)>,
}

/// A stream as far as its messages are concerned.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    grpc: bool,
    messages: [Messages; 2],
    ended: [bool; 2],
    /// The packet of its first octet, and the gap counts of the sides since then.
    opened: u32,
    gaps: [u32; 2],
}

struct Side {
    state: State,
    /// Offset of the next byte.
    position: i64,
    /// Octets of a frame header or control frame cut over packets, and the offset of the first one.
    kept: Vec<u8>,
    kept_from: i64,
    frame: FrameHeader,
    data: Remaining,
    block: Option<OpenBlock>,
    search: Option<Box<Search>>,
    replay: Option<(Box<Search>, usize)>,
    decoder: Decoder<NoMeaning>,
    /// Table sizes this side has announced and the peer has not acknowledged.
    pending: VecDeque<u32>,
    table_size: u32,
    gaps: u32,
    /// The packet up to which bytes were lost or skipped.
    lost_until: u32,
    /// The packet of the current frame's first octet.
    frame_packet: u32,
    edits: Edits,
}

/// One connection.
pub(super) struct Conversation {
    sides: [Side; 2],
    streams: BTreeMap<u32, Stream>,
    probes: HashMap<u32, Probe, foldhash::fast::RandomState>,
    highest: u32,
    first_stream: u32,
    upgrade: Option<detect::Http1Head>,
    tls: Option<[Records; 2]>,
    begun: bool,
    pub carries: Carries,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("carries", &self.carries).finish_non_exhaustive()
    }
}

impl Side {
    fn new() -> Self {
        Self {
            state: State::Opening,
            position: 0,
            kept: Vec::new(),
            kept_from: 0,
            frame: FrameHeader::default(),
            data: Remaining::default(),
            block: None,
            search: None,
            replay: None,
            decoder: Decoder::new(&mut NoMeaning),
            pending: VecDeque::new(),
            table_size: 4_096,
            gaps: 0,
            lost_until: 0,
            frame_packet: 0,
            edits: Edits::default(),
        }
    }

    fn lose(&mut self, packet: u32) {
        self.state = State::Lost;
        self.kept.clear();
        self.block = None;
        self.search = None;
        self.gaps = self.gaps.wrapping_add(1);
        self.lost_until = self.lost_until.max(packet);
        self.decoder.mark_begun_late();
    }

    /// The first bytes end before they tell what they are: so must what stays of them.
    fn keep_opening(&mut self) {
        if let (State::Opening, Some(kept)) = (self.state, &self.search) {
            self.edits.put(self.position - kept.len() as i64, &opening::undecided(kept.bytes()));
        }
    }

    fn forget_block(&mut self) {
        self.block = None;
        self.decoder.mark_begun_late();
    }

    fn forget_left_out(&mut self) {
        if matches!(self.frame.kind(), FrameType::HEADERS | FrameType::PUSH_PROMISE | FrameType::CONTINUATION) {
            self.forget_block();
        }
    }

    fn is_searching(&self) -> bool {
        matches!(self.state, State::Lost | State::Foreign) || self.search.is_some()
    }
}

impl Conversation {
    pub fn new() -> Self {
        Self {
            sides: [Side::new(), Side::new()],
            streams: BTreeMap::new(),
            probes: HashMap::default(),
            highest: 0,
            first_stream: 0,
            upgrade: None,
            tls: None,
            begun: false,
            carries: Carries::Nothing,
        }
    }

    /// Bytes of memory in use for what was found.
    pub fn memory(&self) -> usize {
        self.sides.iter().map(|side| side.edits.memory()).sum()
    }

    /// What was found of a side.
    pub fn edits(&self, side: usize) -> &Edits {
        &self.sides[side].edits
    }

    /// The capture is over.
    pub fn finish(&mut self, shared: &mut Shared) {
        for side in 0..2 {
            self.cut_block(side, shared);
            self.sides[side].keep_opening();
            let edits = std::mem::take(&mut self.sides[side].edits);
            self.sides[side] = Side::new();
            self.sides[side].edits = edits;
            self.sides[side].edits.finish();
        }
        (self.streams, self.probes, self.tls) = Default::default();
    }

    /// The next bytes of a side; what is missing before them is not in the capture.
    pub fn delivered(&mut self, delivered: &Delivered<'_>, shared: &mut Shared) {
        let side = delivered.side;
        if !self.begun {
            self.begun = true;
            if delivered.bytes.starts_with(&[22, 3]) {
                self.tls = Some(Default::default());
                self.carries = Carries::Tls;
            }
        }
        if let Some(records) = &mut self.tls {
            let edits = &mut self.sides[side].edits;
            return records[side].feed(delivered.offset, delivered.bytes, edits);
        }
        self.sides[side].position = delivered.offset;
        self.read(side, delivered.bytes, delivered, shared);
        if self.sides[side].replay.is_some() {
            self.replay(side, delivered, shared);
        }
        self.sides[side].position = delivered.offset.saturating_add_unsigned(delivered.bytes.len() as u64);
    }

    fn read(&mut self, side: usize, bytes: &[u8], now: &Delivered<'_>, shared: &mut Shared) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let before = rest.len();
            rest = match self.sides[side].state {
                State::Header => self.read_header(side, rest, now, shared),
                State::Data => self.read_data(side, rest, now),
                State::Control => self.read_control(side, rest, now, shared),
                State::Skip(left) => self.read_skip(side, rest, left),
                State::Opening => self.read_opening(side, rest, now, shared),
                State::Http1Body(left) => self.read_http1_body(side, rest, left),
                State::Lost => self.search(side, rest, now.at),
                State::Foreign => &[],
            };
            self.sides[side].position += (before - rest.len()) as i64;
        }
    }

    fn replay(&mut self, side: usize, now: &Delivered<'_>, shared: &mut Shared) {
        let end = self.sides[side].position;
        let mut left = Vec::new();
        while let Some((kept, from)) = self.sides[side].replay.take().or_else(|| left.pop()) {
            let Some((piece, at)) = kept.piece(from) else { continue };
            let next = from + piece.len();
            self.sides[side].position = end - (kept.len() - from) as i64;
            self.read(side, piece, &Delivered { at, ..*now }, shared);
            if next < kept.len() {
                left.push((kept, next));
            }
        }
        self.sides[side].position = end;
    }

    fn read_header<'a>(&mut self, at: usize, bytes: &'a [u8], now: &Delivered<'_>, shared: &mut Shared) -> &'a [u8] {
        let side = &mut self.sides[at];
        if side.kept.is_empty() {
            (side.kept_from, side.frame_packet) = (side.position, now.at.packet);
        }
        let take = bytes.len().min(HEADER_LEN - side.kept.len());
        let (part, rest) = bytes.split_at(take);
        side.kept.extend_from_slice(part);
        if let Some(octets) = side.kept.first_chunk::<HEADER_LEN>().copied() {
            side.kept.clear();
            self.begin_frame(at, octets, now, shared);
        }
        rest
    }

    fn begin_frame(&mut self, at: usize, octets: [u8; HEADER_LEN], now: &Delivered<'_>, shared: &mut Shared) {
        let side = &mut self.sides[at];
        let header = FrameHeader::parse(&octets);
        side.frame = header;
        if side.block.is_some() && header.kind() != FrameType::CONTINUATION {
            side.forget_block();
        }
        if header.check().is_err() {
            if now.searched || side.gaps > 0 {
                // the header is kept: the next reader must come to the same end
                side.edits.put(side.kept_from, &control::header(&octets));
                side.lose(now.at.packet);
                return;
            }
            side.forget_left_out();
            side.edits.put(side.kept_from, &control::header(&octets));
            side.state = if header.length() == 0 { State::Header } else { State::Skip(header.length()) };
            return;
        }
        side.edits.put(side.kept_from, &control::header(&octets));
        let most = match header.kind() {
            FrameType::HEADERS | FrameType::CONTINUATION | FrameType::PUSH_PROMISE => limits::HEADER_BLOCK,
            _ => limits::CONTROL_FRAME,
        };
        side.state = match header.kind() {
            FrameType::DATA => {
                side.data = Remaining::new(header.length(), header.has(flag::PADDED));
                if header.length() == 0 { State::Header } else { State::Data }
            }
            kind if !kind.is_known() && header.length() == 0 => State::Header,
            kind if !kind.is_known() => State::Skip(header.length()),
            _ if header.length() as usize > most => {
                side.forget_block();
                State::Skip(header.length())
            }
            _ => State::Control,
        };
        side.kept_from += HEADER_LEN as i64;
        if header.kind() == FrameType::DATA && header.length() == 0 {
            self.end_data(at);
        } else if self.sides[at].state == State::Control && header.length() == 0 {
            self.apply(at, &[], now, shared);
        }
    }

    fn read_control<'a>(&mut self, at: usize, bytes: &'a [u8], now: &Delivered<'_>, shared: &mut Shared) -> &'a [u8] {
        let side = &mut self.sides[at];
        let length = side.frame.length() as usize;
        let take = bytes.len().min(length.saturating_sub(side.kept.len()));
        let (part, rest) = bytes.split_at(take);
        side.kept.extend_from_slice(part);
        if side.kept.len() >= length {
            let payload = std::mem::take(&mut side.kept);
            self.apply(at, &payload, now, shared);
        }
        rest
    }

    fn read_skip<'a>(&mut self, at: usize, bytes: &'a [u8], left: u32) -> &'a [u8] {
        let take = bytes.len().min(left as usize);
        let left = left - take as u32;
        self.sides[at].state = if left == 0 { State::Header } else { State::Skip(left) };
        bytes.get(take..).unwrap_or_default()
    }

    fn read_http1_body<'a>(&mut self, at: usize, bytes: &'a [u8], left: u64) -> &'a [u8] {
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let left = left - take as u64;
        self.sides[at].state = if left == 0 { State::Opening } else { State::Http1Body(left) };
        bytes.get(take..).unwrap_or_default()
    }

    /// A whole frame other than DATA; its payload began at `kept_from`.
    fn apply(&mut self, at: usize, payload: &[u8], now: &Delivered<'_>, shared: &mut Shared) {
        self.sides[at].state = State::Header;
        let (header, from) = (self.sides[at].frame, self.sides[at].kept_from);
        match header.kind() {
            FrameType::HEADERS | FrameType::PUSH_PROMISE => self.begin_block(at, payload, now, shared),
            FrameType::CONTINUATION => self.continue_block(at, payload, now, shared),
            FrameType::SETTINGS => {
                self.settings(at, header, payload);
                self.sides[at].edits.put(from, &control::settings(payload));
            }
            FrameType::PING => self.sides[at].edits.put(from, &control::ping(payload, &shared.replacer.key)),
            FrameType::GOAWAY => {
                self.sides[at].edits.put(from, &control::goaway(payload, &mut shared.reasons));
            }
            // fields of fixed length: priority, error code, increment
            _ => self.sides[at].edits.put(from, payload),
        }
    }

    fn settings(&mut self, at: usize, header: FrameHeader, payload: &[u8]) {
        let (side, peer) = if at == 0 { (0, 1) } else { (1, 0) };
        if header.has(flag::ACK) {
            if let Some(size) = self.sides[peer].pending.pop_front() {
                self.sides[peer].table_size = size;
                self.sides[side].decoder.set_max_size_setting(size);
            }
            return;
        }
        let newest = self.sides[side].pending.back().copied().unwrap_or(self.sides[side].table_size);
        let sizes = crate::http2::settings::pairs(payload).filter(|&(id, _)| id == 1).map(|(_, size)| size);
        let size = sizes.last().unwrap_or(newest);
        if self.sides[side].pending.len() < limits::PENDING_SETTINGS {
            self.sides[side].pending.push_back(size);
            self.sides[peer].decoder.announce_max_size_setting(size);
        }
    }

    fn begin_block(&mut self, at: usize, payload: &[u8], now: &Delivered<'_>, shared: &mut Shared) {
        let side = &mut self.sides[at];
        let (header, from) = (side.frame, side.kept_from);
        let promise = header.kind() == FrameType::PUSH_PROMISE;
        let fields = match (promise, header.has(flag::PRIORITY)) {
            (true, _) => 4,
            (false, true) => 5,
            (false, false) => 0,
        };
        let Some((content, _)) = strip_padding(&header, payload).ok().filter(|(content, _)| content.len() >= fields)
        else {
            side.edits.put(from, payload.get(..usize::from(header.has(flag::PADDED))).unwrap_or_default());
            return side.forget_block();
        };
        let before = usize::from(header.has(flag::PADDED));
        side.edits.put(from, payload.get(..before + fields).unwrap_or_default());
        let fragment = content.get(fields..).unwrap_or_default();
        let block = OpenBlock {
            stream: header.stream,
            end_stream: !promise && header.has(flag::END_STREAM),
            promise,
            octets: fragment.to_vec(),
            pieces: vec![(from + (before + fields) as i64, fragment.len())],
        };
        if header.has(flag::END_HEADERS) {
            self.end_block(at, block, now.client, shared);
        } else {
            side.block = Some(block);
        }
    }

    fn continue_block(&mut self, at: usize, payload: &[u8], now: &Delivered<'_>, shared: &mut Shared) {
        let side = &mut self.sides[at];
        let header = side.frame;
        let fits = |block: &OpenBlock| {
            block.stream == header.stream && block.octets.len() + payload.len() <= limits::HEADER_BLOCK
        };
        let Some(mut block) = side.block.take().filter(fits) else { return side.forget_block() };
        block.octets.extend_from_slice(payload);
        block.pieces.push((side.kept_from, payload.len()));
        if header.has(flag::END_HEADERS) {
            self.end_block(at, block, now.client, shared);
        } else {
            side.block = Some(block);
        }
    }

    /// A whole header block: replaced, and split over its frames as it was.
    fn end_block(&mut self, at: usize, block: OpenBlock, client: usize, shared: &mut Shared) {
        let side = &mut self.sides[at];
        let (octets, facts) =
            block::rewrite(&block.octets, &mut side.decoder, &mut shared.replacer, shared.hide_methods);
        let mut rest = octets.as_slice();
        for (offset, length) in block.pieces {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            side.edits.put(offset, piece);
            rest = behind;
        }
        if block.promise {
            return;
        }
        self.headers(at, block.stream, facts, client);
        if block.end_stream {
            self.end_direction(at, block.stream);
        }
    }

    /// What is there of a header block that the capture, or a gap, cuts off.
    fn cut_block(&mut self, at: usize, shared: &mut Shared) {
        let side = &mut self.sides[at];
        let header = side.frame;
        let whole = !header.has(flag::PADDED) && !header.has(flag::PRIORITY) && header.has(flag::END_HEADERS);
        if side.state != State::Control || header.kind() != FrameType::HEADERS || !whole {
            return;
        }
        let kept = std::mem::take(&mut side.kept);
        let (octets, mut facts) = block::rewrite(&kept, &mut side.decoder, &mut shared.replacer, shared.hide_methods);
        side.edits.put(side.kept_from, &octets);
        side.kept = kept;
        facts.unknown = true;
        self.headers(at, header.stream, facts, at);
        if header.has(flag::END_STREAM) {
            self.end_direction(at, header.stream);
        }
    }

    /// The stream that a block opens, when it does.
    fn headers(&mut self, at: usize, id: u32, facts: Facts, client: usize) {
        let is_request = facts.request || at == client;
        if !is_request || id <= self.highest {
            if self.upgrade.is_none() && facts.grpc_content == Some(false) {
                self.probes.entry(id).or_default().settle();
            }
            return;
        }
        self.highest = id;
        if self.first_stream == 0 {
            self.first_stream = id;
        }
        let grpc = facts.grpc_content.unwrap_or(facts.unknown || facts.te_trailers);
        self.open(at, id, grpc);
    }

    fn open(&mut self, at: usize, id: u32, grpc: bool) {
        if self.streams.len() >= limits::SCRUB_STREAMS {
            self.streams.pop_first();
        }
        let (opened, gaps) = (self.sides[at].frame_packet, [self.sides[0].gaps, self.sides[1].gaps]);
        self.streams.insert(id, Stream { grpc, opened, gaps, ..Stream::default() });
    }

    fn end_direction(&mut self, at: usize, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.ended[at] = true;
        if stream.ended == [true; 2] {
            self.streams.remove(&id);
        }
    }

    fn read_data<'a>(&mut self, at: usize, bytes: &'a [u8], now: &Delivered<'_>) -> &'a [u8] {
        let (mut bytes, mut position) = (bytes, self.sides[at].position);
        let side = &mut self.sides[at];
        let first = side.data.data == side.frame.length();
        if side.data.pad_length_due
            && let Some((&pad, rest)) = bytes.split_first()
        {
            side.edits.put(position, &[pad]);
            // padding longer than the frame is a fault that both readers see
            let _ = side.data.set_pad_length(pad);
            (bytes, position) = (rest, position + 1);
        }
        let take = bytes.len().min(side.data.data as usize);
        let (chunk, rest) = bytes.split_at(take);
        side.data.data -= take as u32;
        let pad = rest.len().min(if side.data.data == 0 { side.data.padding as usize } else { 0 });
        side.data.padding -= pad as u32;
        let whole = side.data.total() == 0;
        self.messages(at, chunk, position, first, now);
        if whole {
            self.end_data(at);
        }
        rest.get(pad..).unwrap_or_default()
    }

    /// Payload of a DATA frame at `position`; `first` when it is the frame's first octets.
    fn messages(&mut self, at: usize, chunk: &[u8], position: i64, first: bool, now: &Delivered<'_>) {
        let id = self.sides[at].frame.stream;
        let before = now.searched && (self.first_stream == 0 || id < self.first_stream);
        if first && before && !self.streams.contains_key(&id) {
            self.probe(at, id, chunk, position, now);
        }
        let side = &mut self.sides[at];
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.grpc) else { return };
        if stream.gaps[at] != side.gaps {
            if stream.opened <= side.lost_until {
                stream.messages[at].lose();
            }
            stream.gaps[at] = side.gaps;
        }
        stream.messages[at].feed(chunk, position, &mut side.edits);
    }

    /// DATA of a stream from before the capture: what looks like the beginning of messages shows whether it is gRPC.
    fn probe(&mut self, at: usize, id: u32, chunk: &[u8], position: i64, now: &Delivered<'_>) {
        let full = self.probes.len() >= limits::LATE_STREAMS && !self.probes.contains_key(&id);
        let header = self.sides[at].frame;
        if full || header.has(flag::PADDED) || self.sides[now.client].is_searching() {
            return;
        }
        let probe = self.probes.entry(id).or_default();
        if probe.is_settled() {
            return;
        }
        if probe.is_between(at) {
            put_beginnings(chunk, header.length(), position, &mut self.sides[at].edits);
        }
        if probe.data(at, chunk, header.length(), PROOFS[usize::from(at != now.client)]) {
            probe.settle();
            self.highest = self.highest.max(id);
            self.open(at, id, true);
        }
    }

    fn end_data(&mut self, at: usize) {
        let header = self.sides[at].frame;
        self.sides[at].state = State::Header;
        if header.has(flag::END_STREAM) {
            self.end_direction(at, header.stream);
        }
    }

    fn read_opening<'a>(&mut self, at: usize, bytes: &'a [u8], now: &Delivered<'_>, shared: &mut Shared) -> &'a [u8] {
        let mut kept = self.sides[at].search.take().unwrap_or_default();
        kept.add(bytes, now.at);
        let from = self.sides[at].position + bytes.len() as i64 - kept.len() as i64;
        match self.judge_opening(at, &kept, from, now, shared) {
            Some(used) => self.sides[at].replay = Some((kept, used)),
            None => self.sides[at].search = Some(kept),
        }
        &[]
    }

    /// Decides what a side's first bytes, from offset `from` on, are; gives how many need no further reading.
    fn judge_opening(
        &mut self,
        at: usize,
        kept: &Search,
        from: i64,
        now: &Delivered<'_>,
        shared: &mut Shared,
    ) -> Option<usize> {
        let (state, used) = match detect::opening(kept.bytes()) {
            Opening::Undecided => return None,
            Opening::Preface => {
                self.sides[at].edits.put(from, detect::PREFACE);
                self.carries = Carries::Http2;
                (State::Header, detect::PREFACE.len())
            }
            Opening::Settings => {
                self.carries = Carries::Http2;
                (State::Header, 0)
            }
            Opening::Http1Request | Opening::Http1Response => {
                return self.judge_http1(at, kept.bytes(), from, shared);
            }
            Opening::Tls => {
                self.carries = Carries::Tls;
                // the three octets that say so
                self.sides[at].edits.put(from, kept.bytes().get(..3).unwrap_or_default());
                (State::Foreign, 0)
            }
            Opening::Other if now.searched || self.carries == Carries::Http2 => {
                self.sides[at].decoder.mark_begun_late();
                (State::Lost, 0)
            }
            Opening::Other => {
                // no protocol begins so, while zeros might go on as one
                self.sides[at].edits.put(from, &[0xff]);
                self.carries_other();
                (State::Foreign, 0)
            }
        };
        self.sides[at].state = state;
        Some(used)
    }

    fn carries_other(&mut self) {
        if self.carries == Carries::Nothing {
            self.carries = Carries::Other;
        }
    }

    fn judge_http1(&mut self, at: usize, bytes: &[u8], from: i64, shared: &mut Shared) -> Option<usize> {
        let head = match detect::http1_head(bytes) {
            Some(head) => head,
            None if bytes.len() < limits::UPGRADE_HEAD => return None,
            None => detect::Http1Head::default(),
        };
        let octets = bytes.get(..head.length).unwrap_or_default();
        if head.switching && head.upgrade_h2c && self.upgrade.is_some() {
            self.sides[at].edits.put(from, &opening::upgrade(octets, shared));
            self.carries = Carries::Http2;
            self.sides[at].state = State::Header;
            self.upgraded(at);
        } else if head.upgrade_h2c && !head.switching {
            self.sides[at].edits.put(from, &opening::upgrade(octets, shared));
            self.sides[at].state =
                if head.content_length > 0 { State::Http1Body(head.content_length) } else { State::Opening };
            self.upgrade = Some(head);
            return Some(octets.len());
        } else {
            let shown = opening::shape(bytes, octets.len());
            self.sides[at].edits.put(from, &shown);
            self.carries_other();
            self.sides[at].state = State::Foreign;
            return Some(0);
        }
        Some(octets.len())
    }

    /// The upgrade's answer: its request is stream 1, and its settings are in force.
    fn upgraded(&mut self, server: usize) {
        let Some(head) = self.upgrade.take() else { return };
        let sizes = crate::http2::settings::pairs(&head.settings).filter(|&(id, _)| id == 1).map(|(_, size)| size);
        if let Some(size) = sizes.last() {
            self.sides[1 - server].table_size = size;
        }
        let size = self.sides[1 - server].table_size;
        self.sides[server].decoder.set_max_size_setting(size);
        let facts = Facts {
            request: true,
            grpc_content: Some(head.content_type.starts_with(b"application/grpc")),
            ..Facts::default()
        };
        self.headers(1 - server, 1, facts, 1 - server);
        self.end_direction(1 - server, 1);
    }

    fn search<'a>(&mut self, at: usize, bytes: &'a [u8], packet: At) -> &'a [u8] {
        let mut search = self.sides[at].search.take().unwrap_or_default();
        let from = self.sides[at].position;
        self.sides[at].edits.fill(from, from + bytes.len() as i64);
        search.add(bytes, packet);
        match search.find() {
            Some(found) => {
                self.carries = Carries::Http2;
                let side = &mut self.sides[at];
                let end = side.position + bytes.len() as i64;
                side.edits.unfill(end - (search.len() - found) as i64);
                side.state = State::Header;
                let until = found.checked_sub(1).and_then(|last| search.piece(last)).map_or(0, |(_, at)| at.packet);
                side.lost_until = side.lost_until.max(until);
                if found > 0 || side.gaps > 0 {
                    side.gaps = side.gaps.wrapping_add(1);
                }
                side.replay = Some((search, found));
            }
            None if search.given_up() && self.carries != Carries::Http2 => {
                self.carries_other();
                self.sides[at].state = State::Foreign;
            }
            None => self.sides[at].search = Some(search),
        }
        &[]
    }

    /// `length` bytes of a side are not in the capture.
    pub fn missing(&mut self, at: usize, length: u64, packet: u32, shared: &mut Shared) {
        if let Some(records) = &mut self.tls {
            return records[at].missing(length);
        }
        let short = u32::try_from(length).ok();
        let side = &mut self.sides[at];
        match (side.state, short) {
            (State::Data, Some(short)) if !side.data.pad_length_due && short <= side.data.total() => {
                self.gap_in_data(at, short);
            }
            (State::Skip(left), Some(short)) if short <= left => {
                side.state = if left == short { State::Header } else { State::Skip(left - short) };
            }
            (State::Control, Some(short)) => self.gap_in_control(at, short, packet, shared),
            (State::Foreign, _) => {}
            (State::Opening, _) if matches!(self.carries, Carries::Other | Carries::Tls) => {}
            (State::Opening, _) => {
                side.keep_opening();
                side.lose(packet);
            }
            _ => side.lose(packet),
        }
    }

    fn gap_in_data(&mut self, at: usize, length: u32) {
        let side = &mut self.sides[at];
        let in_data = length.min(side.data.data);
        side.data.data -= in_data;
        side.data.padding -= length - in_data;
        let (id, whole) = (side.frame.stream, side.data.total() == 0);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.messages[at].skip(in_data);
        }
        if whole {
            self.end_data(at);
        }
    }

    fn gap_in_control(&mut self, at: usize, length: u32, packet: u32, shared: &mut Shared) {
        self.cut_block(at, shared);
        let side = &mut self.sides[at];
        let left = (side.frame.length() as usize).checked_sub(side.kept.len() + length as usize);
        side.kept.clear();
        side.forget_left_out();
        match left {
            Some(0) => side.state = State::Header,
            Some(left) => side.state = State::Skip(left as u32),
            None => side.lose(packet),
        }
    }
}
