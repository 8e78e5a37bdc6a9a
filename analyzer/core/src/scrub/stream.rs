//! What stays of one connection's bytes, as its reader tells what they are: frame headers, control frames field by
//! field, header blocks, message prefixes. Only what is put into the edits is ever written; any byte of which nothing
//! was told is zero.

use crate::connection::prologue;
use crate::connection::set_up::alert_of;
use crate::grpc::body_trailers;
use crate::grpc::call::Call;
use crate::grpc::protocol::Kind;
use crate::http2::connection::detect::{self, Opening};
use crate::http2::frame::header::{FrameHeader, FrameType, HEADER_LEN, flag, strip_padding};
use crate::http2::hpack::Representation;
use crate::limits;

use super::block::{self, Fields};
use super::body_trailers::BodyTrailers;
use super::edits::Edits;
use super::messages::{put_beginnings, put_prefixes};
use super::shared::Shared;
use super::tls::Records;
use super::{control, http1_head};

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

/// One sender's bytes.
#[derive(Debug, Default)]
struct Side {
    /// Offset behind the bytes that it was given last.
    position: i64,
    /// Offset behind the slice of them that is being read.
    end: i64,
    /// Where the payload of the current frame begins, and where the DATA that is being read does.
    payload: i64,
    data: i64,
    /// Fragments of the header block that is being read, by their places and lengths.
    fragments: Vec<(i64, usize)>,
    fields: Fields,
    records: Option<Records>,
    edits: Edits,
    trailers: BodyTrailers,
    /// The stream that ends with the current frame.
    ended: Option<u32>,
}

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    sides: [Side; 2],
    /// Bytes of memory that are accounted for.
    counted: usize,
    pub carries: Carries,
}

impl Conversation {
    /// Bytes of memory that are in use for what was found since this was asked last.
    pub fn grown(&mut self) -> usize {
        let now = self.sides.iter().map(|side| side.edits.memory()).sum();
        let before = std::mem::replace(&mut self.counted, now);
        now.saturating_sub(before)
    }

    /// What was found of a side.
    pub fn edits(&self, side: usize) -> &Edits {
        &self.sides[side].edits
    }

    /// The connection is over.
    pub fn over(&mut self, shared: &mut Shared) {
        for side in &mut self.sides {
            side.trailers.finish_all(&mut side.edits, &mut shared.end_bytes);
            if let Some(mut records) = side.records.take() {
                records.finish(&mut side.edits);
            }
        }
    }

    /// The capture is over.
    pub fn finish(&mut self, shared: &mut Shared) {
        self.over(shared);
        for side in &mut self.sides {
            *side = Side { edits: std::mem::take(&mut side.edits), ..Side::default() };
            side.edits.finish();
        }
    }

    /// The next bytes of a side, the first of them at `offset`.
    pub fn delivered(&mut self, at: usize, offset: i64, bytes: &[u8], tls: bool) {
        let side = &mut self.sides[at];
        side.position = offset.saturating_add_unsigned(bytes.len() as u64);
        side.end = side.position;
        if tls {
            self.carries = Carries::Tls;
            side.records.get_or_insert_default().feed(offset, bytes, &mut side.edits);
        }
    }

    /// The first bytes of a side stand before the protocol.
    pub fn prologue(&mut self, at: usize, offset: i64, bytes: &[u8]) {
        self.sides[at].edits.put(offset, &prologue::shape(bytes));
    }

    /// `length` bytes of a side are not in the capture.
    pub fn missing(&mut self, at: usize, length: u64) {
        let side = &mut self.sides[at];
        if let Some(records) = &mut side.records {
            records.missing(length, &mut side.edits);
        }
    }

    pub fn reads(&mut self, at: usize, behind: usize) {
        let side = &mut self.sides[at];
        side.end = side.position.saturating_sub_unsigned(behind as u64);
    }

    pub fn opening(&mut self, at: usize, kept: &[u8], what: Opening) {
        let side = &mut self.sides[at];
        let from = side.place(kept.len());
        match what {
            Opening::Preface => side.edits.put(from, detect::PREFACE),
            // the three octets that say so
            Opening::Tls => side.edits.put(from, kept.get(..3).unwrap_or_default()),
            Opening::Other if alert_of(kept).is_some() => side.edits.put(from, kept.get(..7).unwrap_or_default()),
            _ => {}
        }
        match what {
            Opening::Preface | Opening::Settings => self.carries = Carries::Http2,
            Opening::Tls => self.carries = Carries::Tls,
            _ => {}
        }
    }

    pub fn held(&mut self, at: usize, headers: &[(usize, u32)]) {
        let side = &mut self.sides[at];
        for &(left, length) in headers {
            side.edits.hold(side.place(left), control::possible_header(length));
        }
    }

    /// The last `left` octets, and what follows, are of another protocol.
    pub fn foreign(&mut self, at: usize, left: usize) {
        let side = &mut self.sides[at];
        if left > 0 {
            // no protocol begins so, while zeros might go on as one
            side.edits.put(side.place(left), &[0xff]);
        }
        self.carries_other();
    }

    fn carries_other(&mut self) {
        if self.carries == Carries::Nothing {
            self.carries = Carries::Other;
        }
    }

    pub fn http1(&mut self, at: usize, kept: &[u8], head: usize, upgrade: bool, agreed: bool, shared: &mut Shared) {
        let octets = kept.get(..head).unwrap_or_default();
        let shown = if upgrade { http1_head::upgrade(octets, shared) } else { http1_head::shape(kept, head) };
        let side = &mut self.sides[at];
        side.edits.put(side.place(kept.len()), &shown);
        if agreed {
            self.carries = Carries::Http2;
        } else if !upgrade {
            self.carries_other();
        }
    }

    pub fn undecided(&mut self, at: usize, kept: &[u8]) {
        let side = &mut self.sides[at];
        side.edits.put(side.position - kept.len() as i64, &http1_head::undecided(kept));
    }

    pub fn searched(&mut self, at: usize, left: usize, boundary: Option<usize>) {
        let side = &mut self.sides[at];
        side.edits.fill(side.place(left), side.end);
        if let Some(behind) = boundary {
            side.edits.unfill(side.place(behind));
            self.carries = Carries::Http2;
        }
    }

    pub fn frame(&mut self, at: usize, header: FrameHeader, left: usize, shared: &mut Shared) {
        let reset = (header.kind() == FrameType::RST_STREAM).then_some(header.stream);
        for side in &mut self.sides {
            reset.into_iter().for_each(|stream| side.trailers.finish(stream, &mut side.edits, &mut shared.end_bytes));
        }
        let side = &mut self.sides[at];
        let ends = matches!(header.kind(), FrameType::DATA | FrameType::HEADERS) && header.has(flag::END_STREAM);
        if let Some(ended) = std::mem::replace(&mut side.ended, ends.then_some(header.stream)) {
            side.trailers.finish(ended, &mut side.edits, &mut shared.end_bytes);
        }
        side.payload = side.place(left);
        if header.kind() != FrameType::CONTINUATION {
            side.fragments.clear();
        }
        side.edits.put(side.payload - HEADER_LEN as i64, &control::header(header));
    }

    pub fn control(&mut self, at: usize, header: FrameHeader, payload: &[u8], shared: &mut Shared) {
        let side = &mut self.sides[at];
        let shown = match header.kind() {
            FrameType::HEADERS | FrameType::PUSH_PROMISE => return side.begin_block(header, payload),
            FrameType::CONTINUATION => return side.continue_block(payload),
            FrameType::SETTINGS => control::settings(payload),
            FrameType::PING => control::ping(payload, &shared.replacer.key),
            FrameType::GOAWAY => control::goaway(payload, &mut shared.reasons),
            // fields of fixed length: priority, error code, increment
            _ => payload.to_vec(),
        };
        side.edits.put(side.payload, &shown);
    }

    pub fn field(&mut self, at: usize, name: Option<&[u8]>, value: Option<&[u8]>, representation: Representation) {
        self.sides[at].fields.add(name, value, representation);
    }

    /// A header block: replaced, and split over its frames as it was.
    pub fn block(&mut self, at: usize, octets: &[u8], whole: bool, shared: &mut Shared) {
        let side = &mut self.sides[at];
        let fields = std::mem::take(&mut side.fields);
        let replaced = block::rewrite(octets, &fields, whole, &mut shared.replacer, shared.hide_methods);
        let mut rest = replaced.as_slice();
        if side.fragments.is_empty() {
            // of the only one, the capture lacks the end
            side.fragments.push((side.payload, rest.len()));
        }
        for (offset, length) in side.fragments.drain(..) {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            side.edits.put(offset, piece);
            rest = behind;
        }
    }

    pub fn pad_length(&mut self, at: usize, pad: u8, left: usize) {
        let side = &mut self.sides[at];
        side.edits.put(side.place(left) - 1, &[pad]);
    }

    pub fn data(&mut self, at: usize, left: usize) {
        let side = &mut self.sides[at];
        side.data = side.place(left);
    }

    pub fn beginnings(&mut self, at: usize, octets: &[u8], header: FrameHeader) {
        let side = &mut self.sides[at];
        put_beginnings(octets, header.length(), side.data, &mut side.edits);
    }

    pub fn messages(&mut self, at: usize, call: &Call, octets: &[u8], begins: bool, shared: &mut Shared) {
        let Side { data, edits, trailers, .. } = &mut self.sides[at];
        let reader = &call.directions[at].reader;
        if call.kind != Kind::ConnectUnary {
            // what a stream of gRPC's own goes on with after a fault is told from where its frames begin
            let begins = begins && call.kind == Kind::Grpc;
            let end = |octets: &[u8], position| {
                body_trailers::begins_end(call.kind, octets)
                    && trailers.add(call, octets, position, &mut shared.end_bytes)
            };
            put_prefixes(reader, octets, begins, *data, edits, end);
        }
    }

    /// An answer to a health check, which stays.
    pub fn health(&mut self, at: usize, octets: &[u8]) {
        let Side { data, edits, .. } = &mut self.sides[at];
        edits.put(*data, octets);
    }

    /// Octets of a response that are no messages: of an RPC's end, or the error of a unary RPC, the status stays; of anything
    /// else nothing.
    pub fn end(&mut self, at: usize, call: &Call, octets: &[u8], shared: &mut Shared) {
        let side = &mut self.sides[at];
        if call.in_trailers || call.kind == Kind::ConnectUnary {
            side.trailers.add(call, octets, side.data, &mut shared.end_bytes);
        }
    }
}

impl Side {
    /// The place that is so many octets before the end of the slice being read.
    fn place(&self, left: usize) -> i64 {
        self.end.saturating_sub_unsigned(left as u64)
    }

    fn continue_block(&mut self, payload: &[u8]) {
        // one of a block holds an octet at least
        if !payload.is_empty() && self.fragments.len() < limits::HEADER_BLOCK {
            self.fragments.push((self.payload, payload.len()));
        }
    }

    fn begin_block(&mut self, header: FrameHeader, payload: &[u8]) {
        self.fragments.clear();
        let fields = match (header.kind(), header.has(flag::PRIORITY)) {
            (FrameType::PUSH_PROMISE, _) => 4,
            (_, true) => 5,
            (_, false) => 0,
        };
        let before = usize::from(header.has(flag::PADDED));
        let Some((content, _)) = strip_padding(&header, payload).ok().filter(|(content, _)| content.len() >= fields)
        else {
            return self.edits.put(self.payload, payload.get(..before).unwrap_or_default());
        };
        self.edits.put(self.payload, payload.get(..before + fields).unwrap_or_default());
        self.fragments.push((self.payload + (before + fields) as i64, content.len() - fields));
    }
}
