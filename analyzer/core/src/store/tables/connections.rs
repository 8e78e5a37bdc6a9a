//! Connections: how they open, who has to act, what is idle, and how they end.

use super::{Cell, Column, take_first};

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
        congestion_after_loss_ns: u64, loss_recovery_in_outages_ns: u64, retransmission_timeouts: u32,
        recovery_ns: i64, recovery_time_ns: i64, recovery_from_packet: u32, recovery_to_packet: u32,
        recovery_direction: u8,
        outage_ns: i64, outage_time_ns: i64, outage_from_packet: u32, outage_to_packet: u32, outage_direction: u8,
        retransmitted_packets: u32, needless_retransmissions: u32, duplicate_packets: u32, keep_alives: u32,
        out_of_order_packets: u32, urgent_packets: u32, late_packets: u32, missing_bytes: u64,
        payload_bytes: u64, decoded_bytes: u64, retransmitted_bytes: u64, not_http2_bytes: u64,
        encrypted_bytes: u64, undecoded_bytes: u64, undelivered_bytes: u64,
        goaway_client: i64, goaway_server: i64,
    }
);

table!(
    /// One row per connection and direction, two for each connection in its order: the client's, the server's.
    Directions, DirectionRow {
        payload_packets: u32, control_packets: u32, ping_packets: u32, ping_ack_packets: u32,
        window_update_packets: u32, settings_packets: u32,
        data_frames: u32, header_frames: u32, pings: u32, ping_acks: u32, window_updates: u32, settings: u32,
        resets: u32, header_block_bytes: u64,
        messages: u32, message_bytes: u64, longest_message_bytes: u32, message_packets: u32,
        first_message_time_ns: i64, last_message_time_ns: i64, busy_intervals: u32,
        dense_packets: u32, dense_first_packet: u32, dense_last_packet: u32,
        dense_first_time_ns: i64, dense_last_time_ns: i64,
        dense_pings: u32, dense_ping_first_packet: u32, dense_ping_last_packet: u32,
        dense_ping_first_time_ns: i64, dense_ping_last_time_ns: i64,
        dense_updates: u32, dense_update_first_packet: u32, dense_update_last_packet: u32,
        dense_update_first_time_ns: i64, dense_update_last_time_ns: i64,
        bdp_pings: u32, keepalive_pings: u32, drain_pings: u32,
    }
);

table!(
    /// One row per connection, in its order: whose turn it was, and its stream limit.
    Turns, TurnRow {
        idle_ns: i64, idles: u32, pauses: u32, pause_ns: i64,
        bursts: u32, burst_messages: u32, interval_ns: i64, interval_spread_ns: i64,
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
        health: u8, health_packet: u32, health_time_ns: i64,
    }
);

table!(
    /// One row per DNS question that a client asked, in the order of the capture; bounded by `limits::LOOKUPS`.
    Lookups, LookupRow {
        client_ip: u32, server_ip: u32, name: u32, kind: u32,
        packet: u32, time_ns: i64,
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
    /// One row per side of a connection, reporter and kind of the ICMP errors about its segments; bounded by
    /// `limits::ICMP_ERRORS`.
    IcmpErrors, IcmpErrorRow {
        connection: u32, direction: u8, reporter: u32, kind: u8, code: u8, mtu: u32, messages: u32,
        first_packet: u32, first_time_ns: i64, last_packet: u32, last_time_ns: i64,
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
    /// One row per connection and length class of the idle intervals of the client.
    Idles, IdleRow {
        connection: u32, length_class: u8, count: u32, total_ns: i64,
        start_time_ns: i64, duration_ns: i64, before_packet: u32, before_time_ns: i64, after_packet: u32,
    }
);

table!(
    /// One row per interval in which a side had to act; bounded by `limits::ACTS`.
    Acts, ActRow {
        connection: u32, stream: u32, direction: u8, idle: u8, method: u32, start_time_ns: i64, duration_ns: i64,
        packet: u32,
    }
);

table!(
    /// One row per silence of a side for which its peer waited; bounded by `limits::STALLS`.
    Stalls, StallRow {
        connection: u32, direction: u8, start_time_ns: i64, duration_ns: i64, stopped_at_packet: u32,
        stopped_time_ns: i64, resumed_at_packet: u32, waiting: u32, ping_packet: u32, ping_time_ns: i64,
        acked_time_ns: i64, unanswered: u32, answers_ns: i64, durations_ns: i64,
    }
);

table!(
    /// One row per side of a connection whose last packets got no answer, though they were retransmitted.
    Unanswered, UnansweredRow {
        connection: u32, direction: u8, heard_packet: u32, heard_time_ns: i64, first_packet: u32, first_time_ns: i64,
        shortest: u32, longest_bytes: u32, retransmissions: u32, timeouts: u32, again_packet: u32, again_time_ns: i64, last_packet: u32,
        last_time_ns: i64, ping_packet: u32, ping_time_ns: i64, fin_alone: u8,
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
        connection: u32, direction: u8, packet: u32, time_ns: i64, reset: u8, acknowledges: u8, lacks: u8,
        ttl: u8, least_ttl: u8, most_ttl: u8,
        identification: u32, identification_before: u32, own_packet: u32, own_time_ns: i64, peer_packet: u32,
        peer_time_ns: i64, peer_idle_ns: i64, open_rpcs: u32, ping_packet: u32, ping_time_ns: i64,
        later_packets: u32, later_packet: u32, later_time_ns: i64,
    }
);

table!(
    /// One row per connection and method that its RPCs used.
    ConnectionMethods, ConnectionMethodRow {
        connection: u32, method: u32,
    }
);
