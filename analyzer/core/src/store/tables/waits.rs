//! Blocked intervals.

use super::{Cell, Column, take_first};

table!(
    /// One row per interval in which a side owed bytes and sent none.
    Waits, WaitRow {
        connection: u32, stream: u32, direction: u8, start_time_ns: i64, duration_ns: i64, cause: u8,
        owed_bytes: u64, in_flight_bytes: i64, congestion_window_bytes: i64, receive_window_bytes: i64,
        stream_window_bytes: i64, connection_window_bytes: i64,
        stream_window_size_bytes: i64, connection_window_size_bytes: i64,
        stopped_at_packet: u32, stopped_time_ns: i64, released_by_packet: u32, resumed_at_packet: u32, released_time_ns: i64,
        flight: u32, flight_first_packet: u32, flight_start_time_ns: i64, idle_before_ns: i64, rto_ns: i64,
        window_before_idle_bytes: i64, mss: u32, rtt_ns: i64, streams: u32, retransmissions: u32, after_loss: u8,
        method: u32,
    }
);

impl WaitRow {
    /// A wait of which TCP knows nothing.
    pub const NOTHING_KNOWN: Self = Self {
        connection: 0,
        stream: 0,
        direction: 0,
        start_time_ns: 0,
        duration_ns: 0,
        cause: 0,
        owed_bytes: 0,
        in_flight_bytes: -1,
        congestion_window_bytes: -1,
        receive_window_bytes: -1,
        stream_window_bytes: i64::MIN,
        connection_window_bytes: i64::MIN,
        stream_window_size_bytes: -1,
        connection_window_size_bytes: -1,
        stopped_at_packet: 0,
        stopped_time_ns: -1,
        released_by_packet: 0,
        resumed_at_packet: 0,
        released_time_ns: -1,
        flight: 0,
        flight_first_packet: 0,
        flight_start_time_ns: -1,
        idle_before_ns: -1,
        rto_ns: -1,
        window_before_idle_bytes: -1,
        mss: 0,
        rtt_ns: -1,
        streams: 0,
        retransmissions: 0,
        after_loss: 0,
        method: u32::MAX,
    };
}
