"""Connections, and what is known of each: packets by direction, idle times, TLS records, methods."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from .columns import Codes, Counts, Ints, Shorts, Sizes


class Connections(Struct, frozen=True, eq=False):
    """One row per TCP connection, in the order of first packets."""

    client_ip: Annotated[Counts, "client's address, index into `Tables.addresses`"]
    client_port: Annotated[Counts, "client's port"]
    server_ip: Annotated[Counts, "server's address, index into `Tables.addresses`"]
    server_port: Annotated[Counts, "server's port"]
    opened_time_ns: Annotated[Ints, "time of the SYN"]
    closed_time_ns: Annotated[Ints, "time of the FIN or RST that ended it"]
    first_time_ns: Annotated[Ints, "time of its first packet"]
    last_time_ns: Annotated[Ints, "time of its last packet"]
    first_packet: Annotated[Counts, "number of its first packet"]
    last_packet: Annotated[Counts, "number of its last packet"]
    handshake_rtt_ns: Annotated[Ints, "from the SYN to the ACK of the SYN-ACK"]
    min_rtt_ns: Annotated[Ints, "sum of the smallest round trips from the capture point to both ends"]
    near_client_rtt_ns: Annotated[Ints, "smallest round trip from the capture point to the client"]
    near_server_rtt_ns: Annotated[Ints, "smallest round trip from the capture point to the server"]
    vantage: Annotated[Codes, "where the capture was taken, index into `VANTAGES`"]
    roles_from: Annotated[Codes, "how the client was identified, index into `ROLES_FROM`"]
    client_side: Annotated[Codes, "0 when the client sent the first packet, else 1"]
    protocol: Annotated[Codes, "index into `PROTOCOLS`"]
    complete: Annotated[Codes, "1 when the opening is in the capture"]
    unheard: Annotated[
        Codes, "directions whose payload was acknowledged but not captured: 1 the client's, 2 the server's"
    ]
    tls: Annotated[Codes, "1 when it is TLS"]
    tls_version: Annotated[Counts, "0x0303 for TLS 1.2, 0x0304 for TLS 1.3, 0 when not known"]
    tls_handshake_ns: Annotated[Ints, "from the ClientHello to the client's Finished"]
    tls_decrypted: Annotated[Codes, "1 when application data was decrypted"]
    tls_suite: Annotated[Counts, "number of the cipher suite, 0 when not known"]
    tls_alpn: Annotated[
        Codes,
        "ALPN bits: 1 the client offers protocols, 2 it offers h2, 4 the server's choice is known, 8 it is h2, 16 none",
    ]
    tls_resumed: Annotated[Codes, "1 when a session is resumed, 2 when not known"]
    tls_retried: Annotated[Codes, "1 when the server asked for a second ClientHello"]
    tls_exact: Annotated[Codes, "1 when the end of the handshake was read, 0 when it was inferred"]
    tls_hello_packet: Annotated[Counts, "packet of the ClientHello, 0 for none"]
    tls_hello_time_ns: Annotated[Ints, "time of that packet"]
    tls_server_hello_ns: Annotated[Ints, "from the ClientHello to the end of the ServerHello"]
    tls_finished_packet: Annotated[Counts, "packet of the client's Finished, 0 when not known"]
    closed_by: Annotated[Codes, "direction that closed first, 2 when it was not closed"]
    mss_client: Annotated[Counts, "payload bytes of the client's full segments, 0 when not known"]
    mss_server: Annotated[Counts, "payload bytes of the server's full segments, 0 when not known"]
    client_agent: Annotated[Counts, "implementation in `user-agent`, index into `Tables.agents`"]
    server_agent: Annotated[
        Counts,
        "software named by `server` or `via`, or the first line of another protocol, index into `Tables.agents`",
    ]
    client_hint: Annotated[Codes, "client's implementation by its frames, index into `IMPLEMENTATIONS`"]
    server_hint: Annotated[Codes, "server's implementation by its frames, index into `IMPLEMENTATIONS`"]
    rpcs: Annotated[Counts, "RPCs on it"]
    retries: Annotated[Counts, "of them, those whose `grpc-previous-rpc-attempts` is 1 or more"]
    max_concurrent_rpcs: Annotated[Counts, "most RPCs open at once"]
    other_streams: Annotated[Counts, "HTTP/2 streams that are not gRPC"]
    peer_max_concurrent_streams: Annotated[Ints, "the server's SETTINGS_MAX_CONCURRENT_STREAMS"]
    packets_client: Annotated[Counts, "packets of the client"]
    packets_server: Annotated[Counts, "packets of the server"]
    bytes_client: Annotated[Sizes, "TCP payload bytes of the client on the wire"]
    bytes_server: Annotated[Sizes, "TCP payload bytes of the server on the wire"]
    client_sequence: Annotated[Counts, "TCP sequence number of the client's offset 0 in `Packets`"]
    server_sequence: Annotated[Counts, "TCP sequence number of the server's offset 0 in `Packets`"]
    congestion_after_loss_ns: Annotated[Sizes, "RPC time blocked by a congestion window that a loss had reduced"]
    loss_recovery_in_outages_ns: Annotated[Sizes, "RPC time of the cause `loss_recovery` in outages"]
    retransmission_timeouts: Annotated[Counts, "retransmissions after a silence as long as the retransmission timeout"]
    recovery_ns: Annotated[Ints, "longest recovery: from a loss, as far as seen, to its retransmission"]
    recovery_time_ns: Annotated[Ints, "time of that retransmission"]
    recovery_from_packet: Annotated[Counts, "packet after the lost one, or the last before it; 0: none"]
    recovery_to_packet: Annotated[Counts, "packet that retransmits the lost one, 0: none"]
    recovery_direction: Annotated[Codes, "who retransmitted: 0 the client, 1 the server"]
    outage_ns: Annotated[Ints, "longest outage: one side retransmitted after two timeouts or more, and heard nothing"]
    outage_time_ns: Annotated[Ints, "end of that outage"]
    outage_from_packet: Annotated[Counts, "first packet in it that got no answer, 0: none"]
    outage_to_packet: Annotated[Counts, "packet of the other side that ended it, 0: none"]
    outage_direction: Annotated[Codes, "who sent in it: 0 the client, 1 the server"]
    retransmitted_packets: Annotated[Counts, "retransmitted packets"]
    needless_retransmissions: Annotated[
        Counts, "of them, those of which the receiver had the bytes already, or that no packet shows to be lost"
    ]
    duplicate_packets: Annotated[Counts, "packets recorded twice; all other columns count them once"]
    keep_alives: Annotated[Counts, "TCP keep-alives with a byte"]
    out_of_order_packets: Annotated[Counts, "packets recorded before earlier bytes of their direction"]
    urgent_packets: Annotated[Counts, "packets with TCP urgent data, which is read as ordinary data"]
    late_packets: Annotated[Counts, "packets after the connection had ended"]
    missing_bytes: Annotated[Sizes, "payload bytes that the capture lacks"]
    payload_bytes: Annotated[Sizes, "payload bytes recorded, the sum of the next five columns"]
    decoded_bytes: Annotated[Sizes, "payload bytes read as HTTP/2"]
    retransmitted_bytes: Annotated[Sizes, "payload bytes that were retransmitted"]
    not_http2_bytes: Annotated[Sizes, "payload bytes of another protocol"]
    encrypted_bytes: Annotated[Sizes, "payload bytes of TLS"]
    undecoded_bytes: Annotated[Sizes, "payload bytes of HTTP/2 with unknown frame boundaries"]
    undelivered_bytes: Annotated[Sizes, "payload bytes behind lost bytes that their receiver never got"]
    goaway_client: Annotated[Ints, "error code of the client's GOAWAY"]
    goaway_server: Annotated[Ints, "error code of the server's GOAWAY"]


class Directions(Struct, frozen=True, eq=False):
    """One row per connection and direction: row 2 x connection is the client's, the next one the server's."""

    payload_packets: Annotated[Counts, "packets with payload, retransmissions left out"]
    control_packets: Annotated[Counts, "payload packets with PING, WINDOW_UPDATE or SETTINGS alone"]
    ping_packets: Annotated[Counts, "control packets with a PING that is no acknowledgement"]
    ping_ack_packets: Annotated[Counts, "control packets with the acknowledgement of a PING"]
    window_update_packets: Annotated[Counts, "control packets with a WINDOW_UPDATE"]
    settings_packets: Annotated[Counts, "control packets with SETTINGS or their acknowledgement"]
    data_frames: Annotated[Counts, "DATA frames"]
    header_frames: Annotated[Counts, "HEADERS, CONTINUATION and PUSH_PROMISE frames"]
    pings: Annotated[Counts, "PING frames, acknowledgements left out"]
    ping_acks: Annotated[Counts, "PING frames that acknowledge"]
    window_updates: Annotated[Counts, "WINDOW_UPDATE frames"]
    settings: Annotated[Counts, "SETTINGS frames and their acknowledgements"]
    resets: Annotated[Counts, "RST_STREAM frames"]
    header_block_bytes: Annotated[Sizes, "payload bytes of the header frames, compressed as sent"]
    messages: Annotated[Counts, "whole gRPC messages"]
    message_bytes: Annotated[Sizes, "bytes of the messages without prefixes"]
    longest_message_bytes: Annotated[Counts, "bytes of the longest of them"]
    message_packets: Annotated[Counts, "packets in which a message ended"]
    first_message_time_ns: Annotated[Ints, "end of the first message"]
    last_message_time_ns: Annotated[Ints, "end of the last message"]
    busy_intervals: Annotated[Counts, "intervals of 10 ms in which a message ended"]
    dense_packets: Annotated[Counts, "most packets in one such interval in which messages ended"]
    dense_first_packet: Annotated[Counts, "the first of them"]
    dense_last_packet: Annotated[Counts, "the last of them"]
    dense_first_time_ns: Annotated[Ints, "time of the first"]
    dense_last_time_ns: Annotated[Ints, "time of the last"]
    dense_pings: Annotated[Counts, "most packets in a second of the clock that carried a PING, or its ACK, and no data"]
    dense_ping_first_packet: Annotated[Counts, "the first of them"]
    dense_ping_last_packet: Annotated[Counts, "the last of them"]
    dense_ping_first_time_ns: Annotated[Ints, "time of the first"]
    dense_ping_last_time_ns: Annotated[Ints, "time of the last"]
    dense_updates: Annotated[Counts, "most packets in a second of the clock that carried WINDOW_UPDATE and no data"]
    dense_update_first_packet: Annotated[Counts, "the first of them"]
    dense_update_last_packet: Annotated[Counts, "the last of them"]
    dense_update_first_time_ns: Annotated[Ints, "time of the first"]
    dense_update_last_time_ns: Annotated[Ints, "time of the last"]
    bdp_pings: Annotated[Counts, "BDP probes, by their payload"]
    keepalive_pings: Annotated[Counts, "keepalive PINGs, by their payload"]
    drain_pings: Annotated[Counts, "PINGs of a graceful shutdown, by their payload"]


class Turns(Struct, frozen=True, eq=False):
    """One row per connection: how long it waited for the client, and when its limit of concurrent streams was reached.

    The connection is idle and waits for the client while no RPC waits for a response and nothing is in flight. An idle
    interval begins when the client can have the last response. Intervals of `PAUSE_NS` and more are the application's
    own pauses; the shorter ones are `idles`.
    """

    idle_ns: Annotated[Ints, "time in which the connection waited for the client, without pauses"]
    idles: Annotated[Counts, "number of these intervals"]
    pauses: Annotated[Counts, "intervals of `PAUSE_NS` and more"]
    pause_ns: Annotated[Ints, "time of the pauses"]
    bursts: Annotated[Counts, "runs of request messages without a response message in between"]
    burst_messages: Annotated[Counts, "request messages in these runs"]
    interval_ns: Annotated[
        Ints, "median time from a request message to the one as many later as there are callers, -1 when not known"
    ]
    interval_spread_ns: Annotated[Ints, "difference of the upper and the lower quartile of these times"]
    at_limit_ns: Annotated[Ints, "time with as many streams open as the server's SETTINGS allow"]
    at_limit_times: Annotated[Counts, "how often the limit was reached"]
    ended_at_limit: Annotated[Counts, "streams that ended while the limit was reached"]
    refills: Annotated[Counts, "of these, streams whose place a new stream took at once"]
    refill_ended_packet: Annotated[Counts, "packet that ended a stream at the limit, for one refill"]
    refill_ended_time_ns: Annotated[Ints, "when that stream ended"]
    refill_opened_packet: Annotated[Counts, "packet that opened the stream in its place"]
    refill_time_ns: Annotated[Ints, "time of that packet"]
    half_closed: Annotated[Counts, "streams that the server ended 1 s or more before the end, and the client never"]
    half_closed_packet: Annotated[Counts, "packet with the server's end of the first of them, 0 for none"]
    half_closed_time_ns: Annotated[Ints, "time of that packet"]


class Setups(Struct, frozen=True, eq=False):
    """One row per connection: how it was set up. Packet 0 and time -1 stand for none."""

    syns: Annotated[Counts, "SYNs of the client"]
    syn_ack_packet: Annotated[Counts, "packet of the server's first SYN-ACK"]
    syn_ack_time_ns: Annotated[Ints, "time of that packet"]
    closed_packet: Annotated[Counts, "packet of the FIN or RST that ended it"]
    reset_packet: Annotated[Counts, "packet of the first RST"]
    reset_time_ns: Annotated[Ints, "time of that packet"]
    client_packet: Annotated[Counts, "packet of the client's first byte"]
    client_time_ns: Annotated[Ints, "time of that packet"]
    client_begins: Annotated[Codes, "what the client's first bytes are, index into `BEGINNINGS`"]
    server_packet: Annotated[Counts, "packet of the server's first byte"]
    server_time_ns: Annotated[Ints, "time of that packet"]
    server_begins: Annotated[Codes, "what the server's first bytes are, index into `BEGINNINGS`"]
    http1_status: Annotated[Shorts, "status code when these are an HTTP/1 response, else 0"]
    client_settings_packet: Annotated[Counts, "packet of the client's first SETTINGS"]
    client_settings_time_ns: Annotated[Ints, "time of that packet"]
    server_settings_packet: Annotated[Counts, "packet of the server's first SETTINGS"]
    server_settings_time_ns: Annotated[Ints, "time of that packet"]
    alert: Annotated[Codes, "first readable TLS alert but close_notify (RFC 8446 section 6), 255 for none"]
    alert_by: Annotated[Codes, "direction of that alert, 255 for none"]
    alert_packet: Annotated[Counts, "packet of that alert"]
    alert_time_ns: Annotated[Ints, "time of that packet"]
    health: Annotated[Codes, "last answer to `grpc.health.v1`: 0 to 3, as in its `ServingStatus`, 255 for none"]
    health_packet: Annotated[Counts, "packet of that answer"]
    health_time_ns: Annotated[Ints, "time of that packet"]


class Lookups(Struct, frozen=True, eq=False):
    """One row per DNS question, in the order of the capture; the core keeps a limited number."""

    client_ip: Annotated[Counts, "who asked, index into `Tables.addresses`"]
    server_ip: Annotated[Counts, "DNS server, index into `Tables.addresses`"]
    name: Annotated[Counts, "name asked for, index into `Tables.lookup_names`"]
    kind: Annotated[Counts, "record type: 1 is A, 16 TXT, 28 AAAA, 33 SRV"]
    packet: Annotated[Counts, "packet of the first query"]
    time_ns: Annotated[Ints, "time of that packet"]
    answer_packet: Annotated[Counts, "packet of the answer, 0 for none"]
    answer_time_ns: Annotated[Ints, "time of that packet"]
    code: Annotated[Codes, "response code: 0 is no error, 3 no such name (RFC 1035 section 4.1.1)"]


class LookupAddresses(Struct, frozen=True, eq=False):
    """One row per address in an answer of `Lookups`."""

    lookup: Annotated[Counts, "row of the question"]
    address: Annotated[Counts, "address, index into `Tables.addresses`"]


class IcmpErrors(Struct, frozen=True, eq=False):
    """One row per side of a connection, reporter and kind of the ICMP errors about its packets.

    The core keeps a limited number. An error quotes the packet that did not arrive; that names the connection.
    """

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender of the packets that did not arrive"]
    reporter: Annotated[Counts, "sender of the errors, index into `Tables.addresses`"]
    kind: Annotated[Codes, "type: 3 of ICMP, 1 or 2 of ICMPv6"]
    code: Annotated[Codes, "code"]
    mtu: Annotated[Counts, "MTU that an error for too large packets names, 0 for none"]
    messages: Annotated[Counts, "number of these errors"]
    first_packet: Annotated[Counts, "packet of the first one"]
    first_time_ns: Annotated[Ints, "time of that packet"]
    last_packet: Annotated[Counts, "packet of the last one"]
    last_time_ns: Annotated[Ints, "time of that packet"]


class Records(Struct, frozen=True, eq=False):
    """Records after the handshake of TLS that was not decrypted: a client's and a server's row per connection.

    An answer is a side's first record after a record of the other side. A pause is a silence of 1 ms or longer between
    two records of one side.
    """

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "sender"]
    records: Annotated[Sizes, "number of records"]
    bytes: Annotated[Sizes, "bytes of the records without their headers"]
    longest: Annotated[Counts, "bytes of the longest record"]
    answers: Annotated[Counts, "number of answers"]
    answer_ns: Annotated[
        Ints, "time from the other side's last byte to the first byte of the answer, sum over all answers"
    ]
    longest_answer_ns: Annotated[Ints, "longest of these times"]
    answer_time_ns: Annotated[Ints, "when the longest began"]
    answer_from_packet: Annotated[Counts, "packet at which the longest began"]
    answer_to_packet: Annotated[Counts, "packet of that answer"]
    pauses: Annotated[Counts, "number of pauses"]
    pause_ns: Annotated[Ints, "time of all pauses"]
    longest_pause_ns: Annotated[Ints, "longest pause"]
    pause_time_ns: Annotated[Ints, "when the longest pause began"]
    pause_from_packet: Annotated[Counts, "packet at which the longest pause began"]
    pause_to_packet: Annotated[Counts, "packet of the record that ended it"]


class Idles(Struct, frozen=True, eq=False):
    """Idle intervals of `Turns` by length: one row per connection and length class.

    Class n has lengths from 2^n to 2^(n+1) microseconds; class 0 includes shorter ones.
    """

    connection: Annotated[Counts, "row of its connection"]
    length_class: Annotated[Codes, "binary logarithm of the length in microseconds"]
    count: Annotated[Counts, "intervals of this class"]
    total_ns: Annotated[Ints, "time of these intervals"]
    start_time_ns: Annotated[Ints, "beginning of the last one: when the client can have the last response"]
    duration_ns: Annotated[Ints, "length of the last one"]
    before_packet: Annotated[Counts, "packet that completed the last outstanding response"]
    before_time_ns: Annotated[Ints, "time of that packet"]
    after_packet: Annotated[Counts, "the client's next request packet"]


class Stalls(Struct, frozen=True, eq=False):
    """One row per silence for which the peer waited: several RPCs for 50 ms or longer, or a PING for 20 ms or longer.

    A silence in which packets were retransmitted has no row, unless they arrived twice. A connection has at most 256
    rows, and all of them 100,000.
    """

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "the side that was silent"]
    start_time_ns: Annotated[Ints, "since when its peer waited, and all that it had sent was acknowledged"]
    duration_ns: Annotated[Ints, "from then until it sent its next bytes"]
    stopped_at_packet: Annotated[Counts, "packet with its last bytes before"]
    stopped_time_ns: Annotated[Ints, "time of that packet"]
    resumed_at_packet: Annotated[Counts, "packet with its next bytes"]
    waiting: Annotated[Counts, "RPCs that waited for it, 0 where it is the client"]
    ping_packet: Annotated[Counts, "packet of the PING that it did not acknowledge for 20 ms or longer, 0 for none"]
    ping_time_ns: Annotated[Ints, "time of that packet"]
    acked_time_ns: Annotated[Ints, "when its TCP had acknowledged all bytes of its peer, -1 when not before it resumed"]
    unanswered: Annotated[Counts, "of the RPCs that waited, those that had no answer before the next silence"]
    answers_ns: Annotated[Ints, "from the first to the last answer of the others, -1 where there was none"]
    durations_ns: Annotated[Ints, "by how much the slowest of them took longer than the quickest, -1 for none"]


class Unanswered(Struct, frozen=True, eq=False):
    """One row per side of a connection whose last packets got no answer.

    Not one packet of the peer came after the side had sent, though it retransmitted after two timeouts or more. A peer
    of which the capture holds no packet at all may have answered out of sight.
    """

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "the side that got no answer"]
    heard_packet: Annotated[Counts, "the peer's last packet, 0 for none in the capture"]
    heard_time_ns: Annotated[Ints, "time of that packet"]
    first_packet: Annotated[Counts, "the side's first packet with payload after it"]
    first_time_ns: Annotated[Ints, "time of that packet"]
    shortest: Annotated[Counts, "shortest payload of its packets from that one on, 0 for a FIN alone"]
    longest_bytes: Annotated[Counts, "longest payload of a packet of that side that was acknowledged"]
    retransmissions: Annotated[Counts, "packets that it retransmitted since"]
    timeouts: Annotated[Counts, "of these, after a silence as long as the retransmission timeout"]
    again_packet: Annotated[Counts, "first retransmission since"]
    again_time_ns: Annotated[Ints, "time of that packet"]
    last_packet: Annotated[Counts, "last retransmission"]
    last_time_ns: Annotated[Ints, "time of that packet"]
    ping_packet: Annotated[Counts, "packet of its first PING that was not acknowledged, 0 for none"]
    ping_time_ns: Annotated[Ints, "time of that packet"]
    fin_alone: Annotated[Codes, "1 when its peer had acknowledged all payload, so that only the FIN got no answer"]


class Undelivered(Struct, frozen=True, eq=False):
    """One row per side of a connection whose first unacknowledged bytes never arrived.

    Its peer was heard after them, or reported later bytes as received. They were retransmitted in vain, or the capture
    shows only what follows them.
    """

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "the sender of these bytes"]
    first_packet: Annotated[Counts, "their first retransmission; without one, the packet that follows them"]
    first_time_ns: Annotated[Ints, "time of that packet"]
    retransmissions: Annotated[Counts, "packets that retransmit them"]
    shortest: Annotated[Counts, "shortest payload of these packets, 0 for none"]
    last_packet: Annotated[Counts, "last retransmission, 0 for none"]
    last_time_ns: Annotated[Ints, "time of that packet"]
    hole_bytes: Annotated[Sizes, "bytes in front of later ones that the capture does not show, 0 for none"]
    behind_packet: Annotated[
        Counts, "packet that shows that later bytes arrived: the ACK that reports them, or these bytes; 0 for none"
    ]
    behind_time_ns: Annotated[Ints, "time of that packet"]
    longest_bytes: Annotated[Counts, "longest payload of a packet of that side that was acknowledged"]
    longest_seen_bytes: Annotated[Counts, "longest payload of a packet of that side in the capture"]
    segment_bytes: Annotated[Counts, "payload of its full segments, 0 when not known"]
    heard_packet: Annotated[Counts, "last packet of its peer"]
    heard_time_ns: Annotated[Ints, "time of that packet"]


class Closings(Struct, frozen=True, eq=False):
    """One row per FIN and RST, each side's first."""

    connection: Annotated[Counts, "row of its connection"]
    direction: Annotated[Codes, "its sender, as its addresses say"]
    packet: Annotated[Counts, "the packet"]
    time_ns: Annotated[Ints, "time of that packet"]
    reset: Annotated[Codes, "1 for a RST"]
    acknowledges: Annotated[Codes, "1 with the flag ACK; a RST without it is of a host without that connection"]
    lacks: Annotated[Codes, "1 if that ACK lacks bytes of its peer before it: it crossed them, or they were lost"]
    ttl: Annotated[Codes, "its time to live or hop limit"]
    least_ttl: Annotated[Codes, "the least of that side's packets before that are no RST, 0 for none"]
    most_ttl: Annotated[Codes, "the highest of them"]
    identification: Annotated[Counts, "its IPv4 identification, 4294967295 for none"]
    identification_before: Annotated[Counts, "that of the side's packet before"]
    own_packet: Annotated[Counts, "the side's last packet with new bytes, 0 for none"]
    own_time_ns: Annotated[Ints, "time of that packet"]
    peer_packet: Annotated[Counts, "the peer's last packet with new bytes, 0 for none"]
    peer_time_ns: Annotated[Ints, "time of that packet"]
    peer_idle_ns: Annotated[Ints, "silence of the peer before its latest flight, negative when not known"]
    open_rpcs: Annotated[Counts, "RPCs open at that moment"]
    ping_packet: Annotated[Counts, "the side's first PING that its peer had not acknowledged, 0 for none"]
    ping_time_ns: Annotated[Ints, "time of that packet"]
    later_packets: Annotated[Counts, "packets of that side after a RST that are no RST"]
    later_packet: Annotated[Counts, "the first of them"]
    later_time_ns: Annotated[Ints, "time of that packet"]


class ConnectionMethods(Struct, frozen=True, eq=False):
    """One row per connection and method that its RPCs used."""

    connection: Annotated[Counts, "row of its connection"]
    method: Annotated[Counts, "number of the method, `NO_METHOD` when not in the capture"]
