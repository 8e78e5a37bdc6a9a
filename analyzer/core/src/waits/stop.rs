//! Records what is binding when a sender stops: windows, and bytes in flight.

use serde::{Deserialize, Serialize};

use crate::tcp::half::{self, Half};

use super::layers::Layers;

/// What was binding when a sender that owes bytes sent its last ones.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Stop {
    pub(super) stream: u32,
    pub(super) owed: u64,
    pub(super) in_flight: Option<i64>,
    pub(super) congestion_window: i64,
    pub(super) receive_window: Option<i64>,
    pub(super) stream_window: Option<i64>,
    pub(super) connection_window: Option<i64>,
    /// Sizes of the stream and the connection window at the stop, bytes; `None` if they are unknown.
    pub(super) window_sizes: Option<[i64; 2]>,
    /// What both allow at least where they are not known.
    pub(super) least_window: Option<i64>,
    /// The credits of connection and stream as the sender knew them, where their beginning is not known.
    pub(super) credits: Option<[i64; 2]>,
}

/// What is binding after the last bytes of `side`.
#[inline]
pub fn stopped(layers: &mut Layers<'_>, side: usize) -> Stop {
    let stream = layers.http2.sides[side].last_stream;
    let (stream_window, connection_window) = http2_windows(layers, side, stream);
    let late = layers.http2.begun_late;
    let least_window = if late { least_http2_window(layers, side, stream) } else { None };
    let credits = if late { known_credits(layers, side, stream) } else { None };
    let owed = layers.owed(side, stream);
    let (half, peer) = (&layers.tcp.halves[side], &layers.tcp.halves[1 - side]);
    let segment = i64::from(half.segment_size(peer));
    Stop {
        stream,
        owed,
        in_flight: half.acks_reach_back.then_some((half.highest - half.acked_at_send).max(0)),
        congestion_window: half.congestion.bytes(segment),
        receive_window: receive_window(half, peer, layers.tcp.transport.near_rtt[side]),
        stream_window,
        connection_window,
        window_sizes: layers.http2.window_sizes(side),
        least_window,
        credits,
    }
}

/// The windows of a stream and of the connection as the sender knew them when it sent its last bytes: without credit
/// that was captured too late to have reached it by then.
fn http2_windows(layers: &mut Layers<'_>, side: usize, stream: u32) -> (Option<i64>, Option<i64>) {
    let near = layers.tcp.transport.near_rtt[side];
    let windows = (layers.http2.stream_window(side, stream), layers.http2.connection_window(side));
    let sender = &layers.http2.sides[side];
    if near <= half::NEAR || sender.recent_credits.is_empty() {
        return windows;
    }
    let known = layers.tcp.halves[side].last_data_time.saturating_sub(near);
    let without = |window: Option<i64>, stream| window.map(|window| window - sender.credit_after(stream, known));
    (without(windows.0, stream), without(windows.1, 0))
}

/// What both windows of HTTP/2 allow at least, without credit that may not have reached the sender yet.
#[cold]
fn least_http2_window(layers: &mut Layers<'_>, side: usize, stream: u32) -> Option<i64> {
    let near = layers.tcp.transport.near_rtt[side].max(0);
    let known = layers.tcp.halves[side].last_data_time.saturating_sub(near);
    let sender = &layers.http2.sides[side];
    let unknown = [sender.credit_after(0, known), sender.credit_after(stream, known)];
    layers.http2.least_window(side, stream, unknown)
}

/// The credits of the connection and of a stream without what may not have reached the sender yet.
#[cold]
fn known_credits(layers: &mut Layers<'_>, side: usize, stream: u32) -> Option<[i64; 2]> {
    let near = layers.tcp.transport.near_rtt[side].max(0);
    let known = layers.tcp.halves[side].last_data_time.saturating_sub(near);
    let credits = layers.http2.credits(side, stream)?;
    let sender = &layers.http2.sides[side];
    Some([credits[0] - sender.credit_after(0, known), credits[1] - sender.credit_after(stream, known)])
}

/// The receive window of `peer` as the sender knew it when it sent its last bytes.
fn receive_window(half: &Half, peer: &Half, near: i64) -> Option<i64> {
    let known =
        if near <= half::NEAR { peer.window } else { peer.windows.at(half.last_data_time.saturating_sub(near)) };
    known.and_then(|window| i64::try_from(window).ok())
}
