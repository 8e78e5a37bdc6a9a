//! Finds where a segment's payload is in its sender's bytes.

use crate::at::At;
use crate::packet::{Segment, TcpFlags};
use crate::run::router::{Routed, Router};

use super::packet::Payload;
use super::stream::Conversation;

/// Where a sender's bytes are in its sequence numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    started: bool,
    /// Its SYN was seen.
    opened: bool,
    seq: u32,
    offset: i64,
}

impl Place {
    /// The offset of a segment's first payload byte.
    fn of(&mut self, segment: &Segment<'_>) -> i64 {
        let first = segment.seq.wrapping_add(u32::from(segment.flags.contains(TcpFlags::SYN)));
        if !self.started {
            (self.started, self.seq) = (true, first);
        }
        let offset = self.offset + i64::from(first.wrapping_sub(self.seq) as i32);
        let end = offset + i64::from(segment.payload_len);
        if segment.payload_len > 0 && end > self.offset {
            (self.seq, self.offset) = (first.wrapping_add(segment.payload_len), end);
        }
        offset
    }
}

/// The offset of a segment's first payload byte. Bytes of a peer that the capture has not shown count from the first ACK of
/// them on, as [`Connection`](crate::tcp::connection::Connection) counts them.
fn locate(places: &mut [Place; 2], side: usize, segment: &Segment<'_>) -> Option<i64> {
    let place = places.get_mut(side)?;
    let offset = place.of(segment);
    let is_syn = segment.flags.contains(TcpFlags::SYN);
    place.opened |= is_syn;
    let answered = place.opened && segment.flags.contains(TcpFlags::ACK) && !is_syn;
    let peer = places.get_mut(1 - side)?;
    if answered && !peer.started {
        (peer.started, peer.seq) = (true, segment.ack);
    }
    Some(offset)
}

/// Where a segment's payload is in its packet and in its sender's bytes.
pub(super) fn payload_of<'a>(
    segment: &Segment<'_>,
    captured: &[u8],
    router: &mut Router,
    places: &mut Vec<[Place; 2]>,
    conversations: &'a [Option<Box<Conversation>>],
) -> Option<Payload<'a>> {
    let (opening, route) = match router.place(segment, At::default()) {
        Routed::Read(route) => (None, route),
        Routed::Begun(opening, route) => (Some(opening), route),
        Routed::Kept(..) | Routed::Ignored => return None, // without payload
    };
    let row = route.number as usize;
    if places.len() <= row {
        places.resize(row + 1, [Place::default(); 2]);
    }
    let places = places.get_mut(row)?;
    for (early, segment, _) in opening.iter().flat_map(|opening| opening.routed(route.number, route.place)) {
        locate(places, early.side, &segment)?;
    }
    let offset = locate(places, route.side, segment)?;
    // a payload put together from fragments is elsewhere, and no place in this packet
    let at = segment.payload.as_ptr().addr().wrapping_sub(captured.as_ptr().addr());
    let length = segment.payload.len();
    let inside = at <= captured.len() && length <= captured.len() - at;
    let edits = conversations.get(row).and_then(|one| one.as_ref()).map(|one| one.edits(route.side));
    Some(Payload { at: inside.then_some(at), length, edits, offset })
}
