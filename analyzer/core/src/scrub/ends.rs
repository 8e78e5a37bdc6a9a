//! The ends of RPCs that stand in bodies. What stays of one is its status, which only all of its octets tell: they are kept
//! until the stream ends, with their places.

use std::collections::HashMap;

use crate::grpc::call::Call;
use crate::grpc::protocol::Kind;
use crate::grpc::tail;
use crate::limits;

use super::edits::Edits;

/// The flags of an end that tells no status: compressed in a way that nobody knows.
const NO_STATUS: u8 = 0xff;

/// An end as far as it came.
#[derive(Debug)]
struct End {
    call: Call,
    octets: Vec<u8>,
    /// Where its pieces begin, and their lengths.
    pieces: Vec<(i64, usize)>,
}

impl End {
    /// Bytes of memory that it takes.
    fn size(&self) -> usize {
        size_of::<Self>() + self.octets.len() + self.pieces.len() * size_of::<(i64, usize)>()
    }
}

/// The ends that one side has begun, by stream.
#[derive(Debug, Default)]
pub(super) struct Ends {
    open: HashMap<u32, End, foldhash::fast::RandomState>,
}

impl Ends {
    /// Keeps the next octets of a call's end, which begin at `position`; all connections keep `kept` bytes. `false` if there is
    /// no room for them.
    pub fn add(&mut self, call: &Call, octets: &[u8], position: i64, kept: &mut usize) -> bool {
        let is_new = !self.open.contains_key(&call.id);
        if is_new && self.open.len() >= limits::TAILS || *kept + octets.len() > limits::TAILS_TOTAL {
            return false;
        }
        let new = End { call: *call, octets: Vec::new(), pieces: Vec::new() };
        let end = self.open.entry(call.id).or_insert(new);
        let before = if is_new { 0 } else { end.size() };
        end.call = *call;
        let room = limits::TAIL_BYTES.saturating_sub(end.octets.len()).min(octets.len());
        if room > 0 {
            end.octets.extend(octets.iter().take(room));
            end.pieces.push((position, room));
        }
        *kept += end.size() - before;
        true
    }

    /// A stream is over: its status is written over the octets that told it. An end that tells none has only its flags.
    pub fn finish(&mut self, stream: u32, edits: &mut Edits, kept: &mut usize) {
        let Some(end) = self.open.remove(&stream) else { return };
        *kept = kept.saturating_sub(end.size());
        let none = if end.call.kind == Kind::ConnectUnary { vec![] } else { vec![NO_STATUS] };
        let text = tail::rewrite(&end.call, &end.octets).unwrap_or(none);
        let mut rest = text.as_slice();
        for (position, length) in end.pieces {
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
