//! RPCs with their messages, delays and failures.

use super::{Cell, Column, take_first};

table!(
    /// One row per RPC, in the order in which they started; without `Options::rpc_rows` the first ones of each
    /// connection, those that failed, retries and the longest ones of their method, or of all if they are wanted.
    Rpcs, RpcRow {
        connection: u32, stream: u32, method: u32,
        start_time_ns: i64, duration_ns: i64,
        status: u8, status_source: u8, http_status: u16, protocol: u8, flags: u8,
        first_packet: u32, last_packet: u32, grpc_message: u32, previous_attempts: u8,
        trace_high: u64, trace_low: u64, span_id: u64, request_id: u64,
    }
);

table!(
    /// What each RPC carried, row by row beside [`Rpcs`] when wanted, and whether its row is as it will stay.
    RpcSizes, RpcSizesRow {
        request_messages: u32, response_messages: u32, request_bytes: u64, response_bytes: u64, settled: u8,
    }
);

table!(
    /// One row per gRPC message, in the order in which they were whole.
    Messages, MessageRow {
        connection: u32, stream: u32, direction: u8, index: u32, length: u32, compressed: u8,
        first_packet: u32, first_time_ns: i64, last_packet: u32, last_time_ns: i64,
    }
);

table!(
    /// One row per direction of a stream whose first DATA came later than its HEADERS; bounded by `limits::DELAYS`.
    Delays, DelayRow {
        connection: u32, stream: u32, direction: u8, headers_packet: u32, headers_time_ns: i64, data_packet: u32,
        duration_ns: i64, method: u32,
    }
);

table!(
    /// One row per RPC that ended otherwise than OK, with its budget beside it; bounded by `limits::FAILURES`.
    Failures, FailureRow {
        rpc: u32, last_packet: u32, reset_by: u8, reset_code: u32, answered_by: u32, foreign: u8,
        silence_ns: i64, silence_from_packet: u32, silence_to_packet: u32,
        headers_packet: u32, headers_time_ns: i64,
        cut_request_bytes: u32, cut_request_packet: u32, cut_request_time_ns: i64,
        cut_response_bytes: u32, cut_response_packet: u32, cut_response_time_ns: i64,
        response_messages: u32, since_answer_ns: i64, since_bytes_ns: i64,
        refused_packet: u32, refused_time_ns: i64,
    }
);

table!(
    /// One row per RPC that failed, or had an answer after such a one, with the next equal request of its connection;
    /// bounded by `limits::REPEATS`.
    Repeats, RepeatRow {
        connection: u32, stream: u32, method: u32, attempt: u8, status: u8, packet: u32, time_ns: i64,
        next_stream: u32, next_packet: u32, next_time_ns: i64, same_id: u8,
    }
);

table!(
    /// One row per RPC that is open at the capture's end and had no packet for long; bounded by `limits::OPEN_RPCS`.
    OpenRpcs, OpenRpcRow {
        connection: u32, stream: u32, method: u32, start_time_ns: i64, first_packet: u32,
        since_time_ns: i64, last_packet: u32, last_time_ns: i64, end_time_ns: i64, waits_for: u8, cause: u8,
        heard_packet: u32, heard_time_ns: i64, request_messages: u32, response_messages: u32, timeout_ns: i64,
        closed: u8, headers_unknown: u8, stream_window_bytes: i64, connection_window_bytes: i64,
    }
);

table!(
    /// One row per HTTP/2 request that is no RPC, in the order in which they began; bounded by
    /// `limits::OTHER_REQUESTS`.
    OtherRequests, OtherRequestRow {
        connection: u32, stream: u32, path: u32, http_status: u16, start_time_ns: i64, duration_ns: i64,
        first_packet: u32, last_packet: u32,
    }
);

/// Bits of `Rpcs::flags`.
pub mod rpc_flag {
    /// The end of the RPC was seen.
    pub const COMPLETE: u8 = 1;
    /// The method was not on the wire in this capture.
    pub const METHOD_UNKNOWN: u8 = 2;
    /// The RPC began before the capture.
    pub const BEGUN_BEFORE: u8 = 4;
    /// Bytes of the RPC are missing from the capture.
    pub const TOUCHES_GAP: u8 = 8;
    /// Fields of the request's headers are not known: its deadline may be among them.
    pub const HEADERS_UNKNOWN: u8 = 16;
    /// Its end may be among bytes or packets that the capture lacks: it took at least as long as its row says.
    pub const END_MISSING: u8 = 32;
    /// The row is there because the RPC was among the longest of its method, or of all, when it ended, or in
    /// the sample; gone when the run is over, but where examples are marked.
    pub const LONG: u8 = 128;
    /// The row would be there, too, for nothing but an example; only where [`Options::marks_examples`] is wanted.
    ///
    /// [`Options::marks_examples`]: crate::store::options::Options::marks_examples
    pub const EXAMPLE: u8 = 64;
}
