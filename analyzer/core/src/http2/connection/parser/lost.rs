//! Handles octets that are missing, and searches for the next frame boundary.

use crate::at::At;
use crate::http2::connection::blocks;
use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::State;
use crate::http2::connection::state::{Http2, Protocol};
use crate::http2::connection::watch::Watch;
use crate::http2::frame::header::{FrameType, flag};
use crate::store::tables::Layer;

use super::end::{end_data, end_frame, forget_ended_stream};
use super::http1;

/// Looks for the next frame boundary; when it is found, what follows it is read again as frames.
pub(in crate::http2) fn search<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &'a [u8],
    at: At,
    watch: &mut W,
) -> &'a [u8] {
    let mut search = h2.sides[side].search.take().unwrap_or_default();
    h2.bytes.undecoded += search.add(bytes, at);
    let found = search.find(h2.highest_plausible());
    watch.searched(bytes.len(), found.map(|found| search.len() - found));
    let Some(found) = found else {
        if watch.watches() {
            watch.held(&search.held());
        }
        if search.given_up() && h2.protocol != Protocol::Http2 {
            h2.protocol = Protocol::Other;
            h2.bytes.not_http2 += search.len() as u64;
            h2.sides[side].state = State::Foreign;
            watch.foreign(0);
        } else {
            h2.sides[side].search = Some(search);
        }
        return &[];
    };
    h2.bytes.undecoded += found as u64;
    h2.protocol = Protocol::Http2;
    let until = found.checked_sub(1).and_then(|last| search.piece(last)).map_or(0, |(_, at)| at.packet);
    h2.sides[side].found_boundary(found, until);
    h2.sides[side].replay = Some((search, found));
    &[]
}

/// `length` bytes of `side` are not in the capture. Inside a frame that is read past, decoding goes on; else the
/// boundary is lost.
pub(in crate::http2) fn gap<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    length: u64,
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    if h2.http1.is_some() {
        return http1::gap(h2, side, length, at, reading, watch);
    }
    let Ok(short) = u32::try_from(length) else {
        return lose(h2, side, length, at, reading, watch);
    };
    match h2.sides[side].state {
        State::Data if !h2.sides[side].data.pad_length_due && short <= h2.sides[side].data.total() => {
            gap_in_data(h2, side, short, at, reading);
        }
        State::Skip(left) if short <= left => {
            h2.sides[side].state = State::Skip(left - short);
            if left == short {
                let kind = h2.sides[side].frame.kind();
                end_frame(h2, side, kind, at, reading.cx);
            }
        }
        State::Control => gap_in_control(h2, side, short, at, reading, watch),
        State::Foreign => {}
        State::Opening => {
            if h2.protocol != Protocol::Other && h2.protocol != Protocol::Tls {
                lose(h2, side, length, at, reading, watch);
            }
        }
        _ => lose(h2, side, length, at, reading, watch),
    }
}

pub(in crate::http2) fn gap_in_data<A: Events>(
    h2: &mut Http2<A>,
    side: usize,
    length: u32,
    at: At,
    reading: &mut Reading<'_>,
) {
    forget_ended_stream(h2, side);
    let sender = &mut h2.sides[side];
    let in_data = length.min(sender.data.data);
    sender.data.data -= in_data;
    sender.data.padding -= length - in_data;
    let (slot, whole, header) = (sender.slot, sender.data.total() == 0, sender.frame);
    A::data_lacks(h2, side, slot, in_data, at, reading);
    if whole {
        end_data(h2, side, header, at, reading);
    }
}

/// The frame's length is known, so is its end; a header block gives the fields that came before the gap.
pub(in crate::http2) fn gap_in_control<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    length: u32,
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    let sender = &mut h2.sides[side];
    let header = sender.frame;
    let kept = std::mem::take(&mut sender.kept);
    let left = (header.length() as usize).checked_sub(kept.len() + length as usize);
    if header.kind() == FrameType::HEADERS {
        blocks::headers_cut(h2, side, header, &kept, at, reading, watch);
    }
    if header.kind() == FrameType::PING && header.has(flag::ACK) {
        h2.sides[side].pinged = None;
    }
    blocks::lack(h2, side, header.kind(), kept.len() as u64 + u64::from(length));
    match left {
        Some(0) => {
            let kind = h2.sides[side].frame.kind();
            end_frame(h2, side, kind, at, reading.cx);
        }
        Some(left) => h2.sides[side].state = State::Skip(left as u32),
        None => lose(h2, side, u64::from(length), at, reading, watch),
    }
}

pub(in crate::http2) fn lose<A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    missing: u64,
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) {
    if let Some(search) = h2.sides[side].search.take() {
        if h2.sides[side].state == State::Opening {
            watch.undecided(search.bytes());
        }
        h2.bytes.undecoded += search.len() as u64;
    }
    h2.sides[side].lose(missing, at.packet);
    A::doubt(h2, at);
    h2.problem(Layer::Http2, "bytes are missing: frames are unknown up to the next boundary", at, reading.cx);
}
