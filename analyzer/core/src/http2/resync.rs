//! Finding the next frame boundary in the middle of a connection, by runs of plausible frame headers.

use crate::at::At;
use crate::limits;

use super::frame::{FrameHeader, FrameType, HEADER_LEN};

/// Bytes kept while a boundary is searched, with the packet of each piece.
#[derive(Debug, Default)]
pub(crate) struct Search {
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

impl Search {
    /// Bytes kept.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes kept.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where the first kept byte came.
    pub(crate) fn first(&self) -> At {
        self.pieces.first().map(|&(_, at)| at).unwrap_or_default()
    }

    /// Keeps a piece; gives how many old bytes were dropped for it.
    pub(crate) fn add(&mut self, bytes: &[u8], at: At) -> u64 {
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
    pub(crate) fn given_up(&self) -> bool {
        self.searched > limits::RESYNC_GIVE_UP
    }

    /// The first offset that is a frame boundary. A piece's start that is not yet decided holds later offsets back,
    /// because writers flush whole frames.
    pub(crate) fn find(&mut self) -> Option<usize> {
        for offset in self.tried..self.bytes.len() {
            let starts_piece = self.pieces.binary_search_by_key(&offset, |&(start, _)| start).is_ok();
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
    pub(crate) fn piece(&self, from: usize) -> Option<(&[u8], At)> {
        let index = self.pieces.partition_point(|&(start, _)| start <= from).checked_sub(1)?;
        let end = self.pieces.get(index + 1).map_or(self.bytes.len(), |&(start, _)| start);
        let &(_, at) = self.pieces.get(index)?;
        let bytes = self.bytes.get(from..end)?;
        (!bytes.is_empty()).then_some((bytes, at))
    }
}
