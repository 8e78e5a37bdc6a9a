//! Packets and frames, and what is rare enough to have rows of its own: queues, PINGs, GOAWAYs.

use super::{Cell, Column, take_first};

table!(
    /// One row per TCP packet of the capture.
    Packets, PacketRow {
        packet: u32, time_ns: i64, connection: u32, direction: u8, flags: u32, seq: u64, ack: u64,
        window: u64, payload_bytes: u32, captured_payload_bytes: u32, note: u8,
        identification: u32, timestamp: u32,
    }
);

table!(
    /// Bytes that are sent and not acknowledged after a packet, beside [`Packets`] where few of these have rows.
    InFlight, InFlightRow {
        client_in_flight: i64, server_in_flight: i64,
    }
);

table!(
    /// One row per HTTP/2 frame, in the order in which they were whole.
    Frames, FrameRow {
        connection: u32, direction: u8, stream: u32, kind: u8, flags: u8, length: u32,
        first_packet: u32, first_time_ns: i64, last_packet: u32, last_time_ns: i64,
    }
);

table!(
    /// One row per interval in which the packets of a direction were queued; bounded by `limits::QUEUES`.
    Queues, QueueRow {
        connection: u32, direction: u8, behind: u8, start_time_ns: i64, duration_ns: i64, packets: u32, bytes: u64,
        total_ns: i64, first_packet: u32, first_time_ns: i64, longest_ns: i64, longest_packet: u32, longest_time_ns: i64,
        silent_ns: i64, together_ns: i64,
    }
);

table!(
    /// One row per PING frame, the first ones of a connection and the last ones before a GOAWAY; bounded by
    /// `limits::PINGS`.
    Pings, PingRow {
        connection: u32, direction: u8, packet: u32, time_ns: i64, ack: u8, purpose: u8, strikes: u8, open_rpcs: u32,
    }
);

table!(
    /// One row per GOAWAY frame; bounded by `limits::GOAWAYS`.
    Goaways, GoawayRow {
        connection: u32, direction: u8, packet: u32, time_ns: i64, code: u32, last_stream: u32, reason: u32,
        open_rpcs: u32,
    }
);
