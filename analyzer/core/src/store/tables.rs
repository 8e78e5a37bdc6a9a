//! The columns handed to numpy. Rows are added here only; meaning and unit of each column stand in
//! `analyzer/tables/`.

use crate::limits;

/// A column on its way to numpy.
#[derive(Debug)]
pub enum Column {
    /// Instants and durations, nanoseconds; -1 stands for "not known" where a column allows it.
    I64(Vec<i64>),
    /// Byte counts.
    U64(Vec<u64>),
    /// Row, packet and stream numbers, counts.
    U32(Vec<u32>),
    /// HTTP statuses.
    U16(Vec<u16>),
    /// Small codes and flags.
    U8(Vec<u8>),
}

/// A type a column can hold.
pub trait Cell: Sized {
    /// Wraps a vector of cells.
    fn column(cells: Vec<Self>) -> Column;
}

macro_rules! cells {
    ($($cell:ty => $column:ident),*) => { $(impl Cell for $cell {
        fn column(cells: Vec<Self>) -> Column { Column::$column(cells) }
    })* };
}
cells!(i64 => I64, u64 => U64, u32 => U32, u16 => U16, u8 => U8);

/// Declares a table, its row and their conversion: one `Vec` per column.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident, $row:ident { $($column:ident: $cell:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[allow(missing_docs, reason = "columns are described in analyzer/tables/")]
        pub struct $table { $(pub $column: Vec<$cell>),* }

        /// One row.
        #[derive(Clone, Copy, Debug, Default)]
        #[allow(missing_docs, reason = "columns are described in analyzer/tables/")]
        pub struct $row { $(pub $column: $cell),* }

        impl $table {
            /// Adds a row.
            #[inline]
            pub fn push(&mut self, row: $row) { $(self.$column.push(row.$column);)* }

            /// Number of rows.
            pub fn len(&self) -> usize { [$(self.$column.len()),*].into_iter().min().unwrap_or(0) }

            /// Whether there is no row.
            pub fn is_empty(&self) -> bool { self.len() == 0 }

            /// Moves the rows of `other` to the end, column by column.
            pub fn append(&mut self, other: &mut Self) { $(self.$column.append(&mut std::mem::take(&mut other.$column));)* }

            /// Takes the first rows out as named columns.
            pub fn take_first(&mut self, rows: usize) -> Vec<(&'static str, Column)> {
                vec![$((stringify!($column), <$cell as Cell>::column(take_first(&mut self.$column, rows)))),*]
            }

            /// One row.
            pub fn get(&self, row: usize) -> Option<$row> {
                Some($row { $($column: *self.$column.get(row)?),* })
            }

            /// Keeps the rows with these numbers, in this order.
            pub fn arrange(&mut self, order: &[u32]) {
                $(self.$column = order.iter().filter_map(|&row| self.$column.get(row as usize).copied()).collect();)*
            }

            /// Takes all rows out as named columns.
            pub fn take_columns(&mut self) -> Vec<(&'static str, Column)> {
                vec![$((stringify!($column), <$cell as Cell>::column(std::mem::take(&mut self.$column)))),*]
            }
        }
    };
}

/// Takes the first cells out, or all when there are fewer.
pub fn take_first<T>(cells: &mut Vec<T>, rows: usize) -> Vec<T> {
    let rest = cells.split_off(rows.min(cells.len()));
    std::mem::replace(cells, rest)
}

table!(
    /// One row per connection.
    Connections, ConnectionRow {
        client_ip: u32, client_port: u32, server_ip: u32, server_port: u32,
        opened_time_ns: i64, closed_time_ns: i64, first_time_ns: i64, last_time_ns: i64,
        first_packet: u32, last_packet: u32,
        handshake_rtt_ns: i64, min_rtt_ns: i64, near_client_rtt_ns: i64, near_server_rtt_ns: i64,
        vantage: u8, roles_from: u8, client_side: u8, protocol: u8, complete: u8, unheard: u8, tls: u8, closed_by: u8,
        tls_version: u32, tls_handshake_ns: i64, tls_decrypted: u8,
        tls_suite: u32, tls_alpn: u8, tls_resumed: u8, tls_retried: u8, tls_exact: u8,
        tls_hello_packet: u32, tls_hello_time_ns: i64, tls_server_hello_ns: i64, tls_finished_packet: u32,
        mss_client: u32, mss_server: u32,
        client_agent: u32, server_agent: u32, client_hint: u8, server_hint: u8,
        rpcs: u32, retries: u32, max_concurrent_rpcs: u32, other_streams: u32, peer_max_concurrent_streams: i64,
        packets_client: u32, packets_server: u32, bytes_client: u64, bytes_server: u64,
        client_sequence: u32, server_sequence: u32,
        congestion_after_loss_ns: u64, retransmission_timeouts: u32,
        recovery_ns: i64, recovery_time_ns: i64, recovery_from_packet: u32, recovery_to_packet: u32,
        retransmitted_packets: u32, needless_retransmissions: u32, duplicate_packets: u32, keep_alives: u32, out_of_order_packets: u32,
        urgent_packets: u32, late_packets: u32, missing_bytes: u64,
        payload_bytes: u64, decoded_bytes: u64, retransmitted_bytes: u64, not_http2_bytes: u64,
        encrypted_bytes: u64, undecoded_bytes: u64,
        goaway_client: i64, goaway_server: i64,
    }
);

table!(
    /// One row per RPC, in the order in which they started; without `Options::rpc_rows` the first ones of each
    /// connection, those that failed, retries and the longest ones.
    Rpcs, RpcRow {
        connection: u32, stream: u32, method: u32,
        start_time_ns: i64, duration_ns: i64,
        status: u8, status_source: u8, http_status: u16, protocol: u8, flags: u8,
        first_packet: u32, last_packet: u32, grpc_message: u32, previous_attempts: u8,
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
    /// One row per HTTP/2 frame, in the order in which they were whole.
    Frames, FrameRow {
        connection: u32, direction: u8, stream: u32, kind: u8, flags: u8, length: u32,
        first_packet: u32, first_time_ns: i64, last_packet: u32, last_time_ns: i64,
    }
);

table!(
    /// One row per TCP packet of the capture.
    Packets, PacketRow {
        packet: u32, time_ns: i64, connection: u32, direction: u8, flags: u32, seq: u64, ack: u64,
        window: u64, payload_bytes: u32, captured_payload_bytes: u32, note: u8,
        identification: u32, timestamp: u32,
    }
);

table!(
    /// One row per interval in which a side owed bytes and sent none.
    Waits, WaitRow {
        connection: u32, stream: u32, direction: u8, start_time_ns: i64, duration_ns: i64, cause: u8,
        owed_bytes: u64, in_flight_bytes: i64, congestion_window_bytes: i64, receive_window_bytes: i64,
        stream_window_bytes: i64, connection_window_bytes: i64,
        stream_window_size_bytes: i64, connection_window_size_bytes: i64,
        stopped_at_packet: u32, released_by_packet: u32, resumed_at_packet: u32, released_time_ns: i64,
        flight: u32, flight_first_packet: u32, flight_start_time_ns: i64, idle_before_ns: i64, rto_ns: i64,
        window_before_idle_bytes: i64, mss: u32, rtt_ns: i64, streams: u32, retransmissions: u32, after_loss: u8,
        method: u32,
    }
);

table!(
    /// Two rows per TLS connection that was not decrypted, the client's and the server's: its records behind the
    /// handshake, and the silences between them.
    Records, RecordRow {
        connection: u32, direction: u8, records: u64, bytes: u64, longest: u32,
        answers: u32, answer_ns: i64, longest_answer_ns: i64, answer_time_ns: i64,
        answer_from_packet: u32, answer_to_packet: u32,
        pauses: u32, pause_ns: i64, longest_pause_ns: i64, pause_time_ns: i64,
        pause_from_packet: u32, pause_to_packet: u32,
    }
);

table!(
    /// One row per connection and direction, two for each connection in its order: the client's, the server's.
    Directions, DirectionRow {
        payload_packets: u32, control_packets: u32, ping_packets: u32, ping_ack_packets: u32,
        window_update_packets: u32, settings_packets: u32,
        data_frames: u32, header_frames: u32, pings: u32, ping_acks: u32, window_updates: u32, settings: u32,
        resets: u32, header_block_bytes: u64,
        messages: u32, message_bytes: u64, message_packets: u32,
        first_message_time_ns: i64, last_message_time_ns: i64, busy_intervals: u32,
        bdp_pings: u32, keepalive_pings: u32, drain_pings: u32,
    }
);

table!(
    /// One row per connection, in its order: whose turn it was, and its stream limit.
    Turns, TurnRow {
        idle_ns: i64, idles: u32, pauses: u32, pause_ns: i64,
        bursts: u32, burst_messages: u32,
        at_limit_ns: i64, at_limit_times: u32, ended_at_limit: u32, refills: u32,
        refill_ended_packet: u32, refill_ended_time_ns: i64, refill_opened_packet: u32, refill_time_ns: i64,
        half_closed: u32, half_closed_packet: u32, half_closed_time_ns: i64,
    }
);

table!(
    /// One row per connection, in its order: how it was set up, and what ended it before that was done. Packet 0 and
    /// time -1 stand for none.
    Setups, SetupRow {
        syns: u32, syn_ack_packet: u32, syn_ack_time_ns: i64,
        closed_packet: u32, reset_packet: u32, reset_time_ns: i64,
        client_packet: u32, client_time_ns: i64, client_begins: u8,
        server_packet: u32, server_time_ns: i64, server_begins: u8, http1_status: u16,
        client_settings_packet: u32, client_settings_time_ns: i64,
        server_settings_packet: u32, server_settings_time_ns: i64,
        alert: u8, alert_by: u8, alert_packet: u32, alert_time_ns: i64,
    }
);

table!(
    /// One row per DNS question that a client asked, in the order of the capture; bounded by [`limits::LOOKUPS`].
    Lookups, LookupRow {
        client_ip: u32, server_ip: u32, name: u32, kind: u32,
        packet: u32, time_ns: i64, queries: u32, last_packet: u32,
        answer_packet: u32, answer_time_ns: i64, code: u8,
    }
);

table!(
    /// One row per address in an answer of [`Lookups`].
    LookupAddresses, LookupAddressRow {
        lookup: u32, address: u32,
    }
);

table!(
    /// One row per connection and length class of the idle intervals of the client.
    Idles, IdleRow {
        connection: u32, length_class: u8, count: u32, total_ns: i64,
        start_time_ns: i64, duration_ns: i64, before_packet: u32, after_packet: u32,
    }
);

table!(
    /// One row per silence of a side for which its peer waited; bounded by [`limits::STALLS`].
    Stalls, StallRow {
        connection: u32, direction: u8, start_time_ns: i64, duration_ns: i64, stopped_at_packet: u32,
        stopped_time_ns: i64, resumed_at_packet: u32, waiting: u32, ping_packet: u32, ping_time_ns: i64,
        acked_time_ns: i64,
    }
);

table!(
    /// One row per side of a connection whose last packets got no answer, though they were retransmitted.
    Unanswered, UnansweredRow {
        connection: u32, direction: u8, heard_packet: u32, heard_time_ns: i64, first_packet: u32, first_time_ns: i64,
        retransmissions: u32, timeouts: u32, again_packet: u32, again_time_ns: i64, last_packet: u32,
        last_time_ns: i64, ping_packet: u32, ping_time_ns: i64,
    }
);

table!(
    /// One row per side of a connection whose first unacknowledged bytes never arrived, though its peer was heard.
    Undelivered, UndeliveredRow {
        connection: u32, direction: u8, first_packet: u32, first_time_ns: i64, retransmissions: u32, shortest: u32,
        last_packet: u32, last_time_ns: i64, hole_bytes: u64, behind_packet: u32, behind_time_ns: i64,
        longest_bytes: u32, longest_seen_bytes: u32, segment_bytes: u32, heard_packet: u32, heard_time_ns: i64,
    }
);

table!(
    /// One row per FIN and RST, each side's first.
    Closings, ClosingRow {
        connection: u32, direction: u8, packet: u32, time_ns: i64, reset: u8, ttl: u8, least_ttl: u8, most_ttl: u8,
        identification: u32, identification_before: u32, own_packet: u32, own_time_ns: i64, peer_packet: u32,
        peer_time_ns: i64, peer_idle_ns: i64, open_rpcs: u32, ping_packet: u32, ping_time_ns: i64,
        later_packets: u32, later_packet: u32, later_time_ns: i64,
    }
);

table!(
    /// One row per RPC that is open at the capture's end and had no packet for long; bounded by [`limits::OPEN_RPCS`].
    OpenRpcs, OpenRpcRow {
        connection: u32, stream: u32, method: u32, start_time_ns: i64, first_packet: u32,
        since_time_ns: i64, last_packet: u32, last_time_ns: i64, end_time_ns: i64, waits_for: u8, cause: u8,
        heard_packet: u32, heard_time_ns: i64, request_messages: u32, response_messages: u32, timeout_ns: i64,
        closed: u8, headers_unknown: u8, stream_window_bytes: i64, connection_window_bytes: i64, credited_packet: u32,
        credited_time_ns: i64,
    }
);

table!(
    /// One row per PING frame, the first ones of a connection and the last ones before a GOAWAY; bounded by
    /// [`limits::PINGS`].
    Pings, PingRow {
        connection: u32, direction: u8, packet: u32, time_ns: i64, ack: u8, purpose: u8, strikes: u8, open_rpcs: u32,
    }
);

table!(
    /// One row per GOAWAY frame; bounded by [`limits::GOAWAYS`].
    Goaways, GoawayRow {
        connection: u32, direction: u8, packet: u32, time_ns: i64, code: u32, last_stream: u32, reason: u32,
        open_rpcs: u32,
    }
);

table!(
    /// One row per direction of a stream whose first DATA came later than its HEADERS; bounded by [`limits::DELAYS`].
    Delays, DelayRow {
        connection: u32, stream: u32, direction: u8, headers_packet: u32, headers_time_ns: i64, data_packet: u32,
        duration_ns: i64, method: u32,
    }
);

table!(
    /// One row per HTTP/2 request that is no RPC, in the order in which they began; bounded by
    /// [`limits::OTHER_REQUESTS`].
    OtherRequests, OtherRequestRow {
        connection: u32, stream: u32, path: u32, http_status: u16, start_time_ns: i64, duration_ns: i64,
        first_packet: u32, last_packet: u32,
    }
);

table!(
    /// One row per interval in which the packets of a direction were queued; bounded by [`limits::QUEUES`].
    Queues, QueueRow {
        connection: u32, direction: u8, behind: u8, start_time_ns: i64, duration_ns: i64, packets: u32, bytes: u64,
        total_ns: i64, longest_ns: i64, longest_packet: u32, longest_time_ns: i64,
    }
);

table!(
    /// One row per RPC that ended otherwise than OK, with its budget beside it; bounded by [`limits::FAILURES`].
    Failures, FailureRow {
        rpc: u32, reset_by: u8, reset_code: u32, answered_by: u32, foreign: u8,
        silence_ns: i64, silence_from_packet: u32, silence_to_packet: u32,
    }
);

table!(
    /// One row per connection and method that its RPCs used.
    ConnectionMethods, ConnectionMethodRow {
        connection: u32, method: u32,
    }
);

table!(
    /// Decode trouble as data; bounded by [`limits::PROBLEMS`].
    Problems, ProblemRow {
        time_ns: i64, connection: u32, packet: u32, layer: u8, kind: u32,
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

/// No connection, in a problem row.
pub const NO_CONNECTION: u32 = u32::MAX;

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
    /// The row is there because the RPC was among the longest of its method when it ended; gone when the run is over.
    pub const LONG: u8 = 128;
}

/// The layer a problem belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layer {
    /// Link, network and tunnel headers.
    Packet = 0,
    /// TCP.
    Tcp = 1,
    /// HTTP/2 frames and HPACK.
    Http2 = 2,
    /// gRPC.
    Grpc = 3,
    /// TLS.
    Tls = 4,
}

const LAYERS: [Layer; 5] = [Layer::Packet, Layer::Tcp, Layer::Http2, Layer::Grpc, Layer::Tls];

/// The problems table with its dictionary of texts and its bound.
#[derive(Debug, Default)]
pub struct ProblemLog {
    /// The rows kept.
    pub rows: Problems,
    /// Texts by `kind`.
    pub kinds: Vec<&'static str>,
    /// Problems by `kind`, beyond the rows kept too.
    pub counts: Vec<u64>,
}

impl ProblemLog {
    /// Notes one problem.
    pub fn note(&mut self, layer: Layer, text: &'static str, connection: u32, packet: u32, time_ns: i64) {
        let kind = self.kinds.iter().position(|&known| known == text).unwrap_or_else(|| {
            self.kinds.push(text);
            self.counts.push(0);
            self.kinds.len() - 1
        });
        if let Some(count) = self.counts.get_mut(kind) {
            *count += 1;
        }
        if self.rows.len() < limits::PROBLEMS + limits::ROWS_AHEAD {
            let kind = kind as u32;
            self.rows.push(ProblemRow { time_ns, connection, packet, layer: layer as u8, kind });
        }
    }
}

impl ProblemLog {
    /// Takes the problems of another thread in.
    pub fn absorb(&mut self, other: &Self) {
        let rows: Vec<(ProblemRow, &'static str)> = self.texts().chain(other.texts()).collect();
        let counts = |log: &Self| log.kinds.iter().copied().zip(log.counts.iter().copied()).collect::<Vec<_>>();
        let counted = [counts(self), counts(other)].concat();
        *self = Self::default();
        for (row, text) in rows {
            let layer = LAYERS.into_iter().find(|&layer| layer as u8 == row.layer).unwrap_or(Layer::Packet);
            self.note(layer, text, row.connection, row.packet, row.time_ns);
        }
        self.counts.fill(0);
        for (text, count) in counted {
            let kind = self.kinds.iter().position(|&known| known == text);
            match kind.and_then(|kind| self.counts.get_mut(kind)) {
                Some(sum) => *sum += count,
                None => {
                    self.kinds.push(text);
                    self.counts.push(count);
                }
            }
        }
    }

    fn texts(&self) -> impl Iterator<Item = (ProblemRow, &'static str)> {
        (0..self.rows.len()).filter_map(|i| {
            let row = ProblemRow {
                time_ns: *self.rows.time_ns.get(i)?,
                connection: *self.rows.connection.get(i)?,
                packet: *self.rows.packet.get(i)?,
                layer: *self.rows.layer.get(i)?,
                kind: *self.rows.kind.get(i)?,
            };
            Some((row, *self.kinds.get(row.kind as usize)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_bounded_but_counted() {
        let mut log = ProblemLog::default();
        let most = limits::PROBLEMS + limits::ROWS_AHEAD;
        for packet in 0..(most as u32 + 5) {
            log.note(Layer::Tcp, "a", 0, packet, 0);
        }
        log.note(Layer::Http2, "b", 0, 1, 0);
        assert_eq!(log.rows.len(), most);
        assert_eq!(log.counts, [most as u64 + 5, 1]);
        assert_eq!(log.kinds, ["a", "b"]);
    }

    #[test]
    fn columns_come_out_once() {
        let mut table = Frames::default();
        table.push(FrameRow { stream: 7, ..FrameRow::default() });
        assert_eq!(table.len(), 1);
        let columns = table.take_columns();
        assert!(matches!(columns.iter().find(|(name, _)| *name == "stream"), Some((_, Column::U32(v))) if v == &[7]));
        assert!(table.is_empty());
    }
}
