//! Reads DATA frames in place.

use crate::at::At;
use crate::http2::connection::events::Events;
use crate::http2::connection::reading::Reading;
use crate::http2::connection::side::State;
use crate::http2::connection::state::Http2;
use crate::http2::connection::streams;
use crate::http2::connection::watch::Watch;
use crate::http2::frame::data::Remaining;
use crate::http2::frame::header::{FrameHeader, flag};
use crate::store::tables::Layer;

use super::end::{end_data, forget_ended_stream};

#[inline]
pub(super) fn begin_data<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let slot = h2.streams.slot(header.stream).unwrap_or(streams::NONE);
    let sender = &mut h2.sides[side];
    sender.connection_credit -= i64::from(header.length());
    sender.last_stream = header.stream;
    sender.slot = slot;
    if let Some(stream) = h2.streams.get_mut(slot) {
        stream.credit[side] -= i64::from(header.length());
    }
    if h2.begun_late {
        h2.note_least_credit(side, slot);
    } else if (1..=rest.len()).contains(&(header.length() as usize)) && !header.has(flag::PADDED) {
        return whole_data(h2, side, header, rest, at, reading, watch);
    }
    let sender = &mut h2.sides[side];
    sender.data = Remaining::new(header.length(), header.has(flag::PADDED));
    sender.state = State::Data;
    if header.length() == 0 {
        end_data(h2, side, header, at, reading);
    }
    rest
}

/// All of a DATA frame without padding, which `rest` begins with: what [`read_data`] does with the pieces of others.
#[inline(always)]
pub(super) fn whole_data<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    header: FrameHeader,
    rest: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let (data, behind) = rest.split_at(rest.len().min(header.length() as usize));
    let sender = &mut h2.sides[side];
    let slot = sender.slot;
    sender.data = Remaining::default();
    h2.bytes.decoded += data.len() as u64;
    watch.data(rest.len());
    if slot != streams::NONE {
        A::data(h2, side, slot, data, at, reading, watch);
    }
    end_data(h2, side, header, at, reading);
    behind
}

#[inline]
pub(super) fn read_data<'a, A: Events, W: Watch<A> + ?Sized>(
    h2: &mut Http2<A>,
    side: usize,
    bytes: &'a [u8],
    at: At,
    reading: &mut Reading<'_>,
    watch: &mut W,
) -> &'a [u8] {
    let mut bytes = bytes;
    if h2.sides[side].data.pad_length_due
        && let Some((&pad, rest)) = bytes.split_first()
    {
        h2.bytes.decoded += 1;
        watch.pad_length(pad, rest.len());
        if let Err(error) = h2.sides[side].data.set_pad_length(pad) {
            h2.problem(Layer::Http2, error.reason, at, reading.cx);
        }
        bytes = rest;
    }
    forget_ended_stream(h2, side);
    let sender = &mut h2.sides[side];
    let unread = sender.slot == streams::NONE && at_start(&sender.data, sender.frame);
    let take = bytes.len().min(sender.data.data as usize);
    watch.data(bytes.len());
    let (chunk, rest) = bytes.split_at(take);
    sender.data.data -= take as u32;
    let pad = rest.len().min(if sender.data.data == 0 { sender.data.padding as usize } else { 0 });
    sender.data.padding -= pad as u32;
    let (whole, mut slot) = (sender.data.total() == 0, sender.slot);
    h2.bytes.decoded += (take + pad) as u64;
    if unread && h2.begun_late {
        let header = h2.sides[side].frame;
        slot = A::late_data(h2, side, header, chunk, reading, watch);
        h2.sides[side].slot = slot;
    }
    if !chunk.is_empty() && slot != streams::NONE {
        A::data(h2, side, slot, chunk, at, reading, watch);
    }
    if whole {
        let header = h2.sides[side].frame;
        end_data(h2, side, header, at, reading);
    }
    rest.get(pad..).unwrap_or_default()
}

/// Whether no octet of a DATA frame was read yet.
fn at_start(data: &Remaining, header: FrameHeader) -> bool {
    data.data == header.length() && !data.pad_length_due
}
