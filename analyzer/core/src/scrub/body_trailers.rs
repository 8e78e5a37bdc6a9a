//! Trailers in bodies (gRPC-Web, Connect). What stays of them is the status, which only all of their octets tell: they are
//! kept until the stream ends, with their places.

use std::collections::HashMap;

use crate::grpc::body_trailers;
use crate::grpc::call::Call;
use crate::grpc::protocol::Kind;
use crate::limits;

use super::edits::Edits;

/// The flags of trailers that tell no status: compressed in a way that nobody knows.
const NO_STATUS: u8 = 0xff;

/// Trailers as far as they came.
#[derive(Debug)]
struct OpenTrailers {
    call: Call,
    octets: Vec<u8>,
    /// Where its pieces begin, and their lengths.
    pieces: Vec<(i64, usize)>,
}

impl OpenTrailers {
    /// Bytes of memory that they take.
    fn size(&self) -> usize {
        size_of::<Self>() + self.octets.len() + self.pieces.len() * size_of::<(i64, usize)>()
    }
}

/// The trailers that one side has begun, by stream.
#[derive(Debug, Default)]
pub(super) struct BodyTrailers {
    open: HashMap<u32, OpenTrailers, foldhash::fast::RandomState>,
}

impl BodyTrailers {
    /// Keeps the next octets of a call's trailers, which begin at `position`; all connections keep `kept` bytes. `false` if there is
    /// no room for them.
    pub fn add(&mut self, call: &Call, octets: &[u8], position: i64, kept: &mut usize) -> bool {
        let is_new = !self.open.contains_key(&call.id);
        if is_new && self.open.len() >= limits::TAILS || *kept + octets.len() > limits::TAILS_TOTAL {
            return false;
        }
        let new = OpenTrailers { call: *call, octets: Vec::new(), pieces: Vec::new() };
        let trailers = self.open.entry(call.id).or_insert(new);
        let before = if is_new { 0 } else { trailers.size() };
        trailers.call = *call;
        let room = limits::TAIL_BYTES.saturating_sub(trailers.octets.len()).min(octets.len());
        if room > 0 {
            trailers.octets.extend(octets.iter().take(room));
            trailers.pieces.push((position, room));
        }
        *kept += trailers.size() - before;
        true
    }

    /// A stream is over: its status is written over the octets that told it. Trailers that tell none keep only their flags.
    pub fn finish(&mut self, stream: u32, edits: &mut Edits, kept: &mut usize) {
        let Some(trailers) = self.open.remove(&stream) else { return };
        *kept = kept.saturating_sub(trailers.size());
        let none = if trailers.call.kind == Kind::ConnectUnary { vec![] } else { vec![NO_STATUS] };
        let text = body_trailers::rewrite(&trailers.call, &trailers.octets).unwrap_or(none);
        let mut rest = text.as_slice();
        for (position, length) in trailers.pieces {
            let (piece, behind) = rest.split_at(length.min(rest.len()));
            edits.put(position, piece);
            rest = behind;
        }
    }

    /// The connection is over.
    pub fn finish_all(&mut self, edits: &mut Edits, kept: &mut usize) {
        let streams: Vec<u32> = self.open.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.finish(stream, edits, kept));
    }
}
