//! Makes the row of a wait.

use crate::at::At;
use crate::store::tables::WaitRow;
use crate::tcp::half::Ack;

use super::layers::Layers;
use super::stop::Stop;

const NOT_KNOWN: i64 = -1;

/// What the layers know of a wait of `side`; its time and cause are not in it.
pub(super) fn row(layers: &Layers<'_>, side: usize, stop: &Stop, released: Option<Ack>, at: At) -> WaitRow {
    let (half, peer) = (&layers.tcp.halves[side], &layers.tcp.halves[1 - side]);
    let near = layers.tcp.transport.near_rtt[side].max(0);
    WaitRow {
        connection: layers.tcp.row,
        stream: stop.stream,
        direction: layers.http2.direction(side),
        owed_bytes: stop.owed,
        in_flight_bytes: stop.in_flight.unwrap_or(NOT_KNOWN),
        congestion_window_bytes: stop.congestion_window,
        receive_window_bytes: stop.receive_window.unwrap_or(NOT_KNOWN),
        // windows may be negative (RFC 9113 section 6.9.2): -1 cannot stand for "not known"
        stream_window_bytes: stop.stream_window.unwrap_or(i64::MIN),
        connection_window_bytes: stop.connection_window.unwrap_or(i64::MIN),
        stream_window_size_bytes: stop.window_sizes.map_or(NOT_KNOWN, |sizes| sizes[0]),
        connection_window_size_bytes: stop.window_sizes.map_or(NOT_KNOWN, |sizes| sizes[1]),
        stopped_time_ns: half.last_data_time,
        released_by_packet: released.map_or(0, |ack| ack.packet),
        released_time_ns: released.map_or(NOT_KNOWN, |ack| ack.time),
        resumed_at_packet: at.packet,
        flight: half.flight.number,
        flight_first_packet: half.flight.first_packet,
        flight_start_time_ns: half.flight.start_time,
        idle_before_ns: half.flight.idle_before,
        rto_ns: half.rtt.retransmission_timeout(near).unwrap_or(NOT_KNOWN),
        window_before_idle_bytes: half.flight.window_before,
        mss: half.segment_size(peer),
        rtt_ns: layers.tcp.transport.round_trip().unwrap_or(NOT_KNOWN),
        retransmissions: half.retransmissions_since,
        ..WaitRow::default()
    }
}
