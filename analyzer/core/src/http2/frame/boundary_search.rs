//! Finds the next frame boundary in the middle of a connection, by runs of plausible frame headers.

use serde::{Deserialize, Serialize};

use crate::at::At;
use crate::limits;

use super::header::{FrameHeader, FrameType, HEADER_LEN};

/// Bytes kept while a boundary is searched, with the packet of each piece.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::http2) struct Search {
    bytes: Vec<u8>,
    /// Where each piece begins in `bytes`.
    pieces: Vec<(usize, At)>,
    /// Offsets before this were tried and are none.
    tried: usize,
    searched: u64,
}

/// What a chain of frame headers from one offset says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chain {
    Boundary,
    /// Nothing against it, but too little yet.
    Open,
    None,
}

/// Whether a packet's payload is a run of frames that ends with it, of streams up to `highest`, with two at least and
/// HEADERS among them: a request or a response that was written as one. Nothing else looks so by chance.
pub(in crate::http2) fn is_run_of_frames(bytes: &[u8], highest: u32) -> bool {
    let (mut rest, mut frames, mut has_headers) = (bytes, 0, false);
    while let Some((octets, behind)) = rest.split_first_chunk::<HEADER_LEN>() {
        let header = FrameHeader::parse(octets);
        let Some(next) = behind.get(header.length() as usize..) else { return false };
        if !header.is_plausible() || header.stream > highest || !header.carries_something(behind) {
            return false;
        }
        frames += 1;
        has_headers |= header.kind() == FrameType::HEADERS;
        rest = next;
    }
    rest.is_empty() && frames >= 2 && has_headers
}

impl Search {
    /// Bytes kept.
    pub(in crate::http2) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes kept.
    pub(in crate::http2) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the first kept byte came.
    pub(in crate::http2) fn first(&self) -> At {
        self.pieces.first().map(|&(_, at)| at).unwrap_or_default()
    }

    /// Keeps a piece; gives how many old bytes were dropped for it.
    pub(in crate::http2) fn add(&mut self, bytes: &[u8], at: At) -> u64 {
        self.searched += bytes.len() as u64;
        self.pieces.push((self.bytes.len(), at));
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() <= limits::RESYNC_BUFFER {
            return 0;
        }
        let drop = self.bytes.len() - limits::RESYNC_BUFFER / 2;
        self.drop_front(drop);
        drop as u64
    }

    fn drop_front(&mut self, drop: usize) {
        self.bytes.drain(..drop);
        self.tried = self.tried.saturating_sub(drop);
        let first = self.pieces.iter().rposition(|&(start, _)| start <= drop).unwrap_or(0);
        self.pieces.drain(..first);
        for (start, _) in &mut self.pieces {
            *start = start.saturating_sub(drop);
        }
    }

    /// Whether so much was searched in vain that this is another protocol.
    pub(in crate::http2) fn given_up(&self) -> bool {
        self.searched > limits::RESYNC_GIVE_UP
    }

    /// The first offset that is a frame boundary. A piece's start that is not yet decided holds later offsets back,
    /// because writers flush whole frames, but not a last piece that is a run of them.
    pub(in crate::http2) fn find(&mut self, highest: Option<u32>) -> Option<usize> {
        if let Some(highest) = highest {
            return self.find_known(highest).or_else(|| self.last_piece(highest));
        }
        for offset in self.tried..self.bytes.len() {
            let starts_piece = self.starts_piece(offset);
            match self.chain(offset, starts_piece) {
                Chain::Boundary => return Some(offset),
                Chain::Open if starts_piece => {
                    self.tried = offset;
                    return None;
                }
                Chain::Open | Chain::None => {}
            }
        }
        self.tried = self.bytes.len().saturating_sub(HEADER_LEN);
        None
    }

    /// The same where streams above `highest` cannot have come yet. That makes a header's stream identifier a sign too:
    /// two headers in a row are enough, and one whose frame ends exactly where the bytes end.
    fn find_known(&mut self, highest: u32) -> Option<usize> {
        for offset in self.tried..self.bytes.len() {
            match self.chain_known(offset, highest) {
                Chain::Boundary => return Some(offset),
                Chain::Open => {
                    self.tried = offset;
                    return None;
                }
                Chain::None => {}
            }
        }
        self.tried = self.bytes.len();
        None
    }

    /// Where the last piece begins, when it is a run of frames.
    fn last_piece(&self, highest: u32) -> Option<usize> {
        let &(start, _) = self.pieces.last()?;
        is_run_of_frames(self.bytes.get(start..)?, highest).then_some(start)
    }

    fn chain_known(&self, offset: usize, highest: u32) -> Chain {
        let mut position = offset;
        for frames in 0..2 {
            let Some(octets) = self.bytes.get(position..).and_then(|b| b.first_chunk::<HEADER_LEN>()) else {
                // a frame that ends with the bytes; an empty one only where a writer's flush begins
                let whole = frames == 1 && position == self.bytes.len();
                let sure = whole && (position - offset > HEADER_LEN || self.starts_piece(offset));
                return if sure { Chain::Boundary } else { Chain::Open };
            };
            let header = FrameHeader::parse(octets);
            let payload = self.bytes.get(position + HEADER_LEN..).unwrap_or_default();
            if !header.is_plausible() || header.stream > highest || !header.carries_something(payload) {
                return Chain::None;
            }
            position += HEADER_LEN + header.length() as usize;
        }
        Chain::Boundary
    }

    /// What holds the decision back: headers that may be ones, as octets behind each one's first and the length it tells.
    #[cold]
    pub(in crate::http2) fn held(&self) -> Vec<(usize, u32)> {
        let (mut position, mut headers) = (self.tried, Vec::new());
        while let Some(octets) = self.bytes.get(position..).and_then(|b| b.first_chunk::<HEADER_LEN>()) {
            let header = FrameHeader::parse(octets);
            if !header.is_plausible() {
                break;
            }
            headers.push((self.bytes.len() - position, header.length()));
            position += HEADER_LEN + header.length() as usize;
        }
        headers
    }

    fn starts_piece(&self, offset: usize) -> bool {
        self.pieces.binary_search_by_key(&offset, |&(start, _)| start).is_ok()
    }

    /// Follows frame headers from `offset`. One header is too weak a sign; enough are three in a row, two with a
    /// control frame of fixed length among them, or at the start of a piece a run that ends exactly at a piece's end.
    fn chain(&self, offset: usize, starts_piece: bool) -> Chain {
        let (mut position, mut frames, mut fixed) = (offset, 0, 0);
        while let Some(octets) = self.bytes.get(position..).and_then(|b| b.first_chunk::<HEADER_LEN>()) {
            let header = FrameHeader::parse(octets);
            if !header.is_plausible() {
                return Chain::None;
            }
            frames += 1;
            fixed += u32::from(matches!(
                header.kind(),
                FrameType::PING | FrameType::WINDOW_UPDATE | FrameType::RST_STREAM | FrameType::SETTINGS
            ));
            position += HEADER_LEN + header.length() as usize;
            if frames >= 3 || (frames >= 2 && fixed >= 1) {
                return Chain::Boundary;
            }
        }
        let ends_with_piece = position == self.bytes.len();
        match (frames, starts_piece && ends_with_piece) {
            (0, _) => Chain::Open,
            (2.., true) => Chain::Boundary,
            (1, true) if fixed == 1 => Chain::Boundary,
            _ => Chain::Open,
        }
    }

    /// The rest of the piece that holds an offset.
    pub(in crate::http2) fn piece(&self, from: usize) -> Option<(&[u8], At)> {
        let index = self.pieces.partition_point(|&(start, _)| start <= from).checked_sub(1)?;
        let end = self.pieces.get(index + 1).map_or(self.bytes.len(), |&(start, _)| start);
        let &(_, at) = self.pieces.get(index)?;
        let bytes = self.bytes.get(from..end)?;
        (!bytes.is_empty()).then_some((bytes, at))
    }
}
