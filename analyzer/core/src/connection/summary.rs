//! Makes a connection's rows of the tables of connections and set-ups.

use crate::at::{At, place};
use crate::grpc::health;
use crate::http2::connection::http2::Protocol;
use crate::store::tables::{ConnectionRow, SetupRow};
use crate::tcp::connection::{Connection as Tcp, Counters};
use crate::tls::Facts;

use super::content::Content;
use super::roles::{self, RolesFrom};

const NOT_KNOWN: i64 = -1;
/// No alert, and nobody who sent one.
const NO_ALERT: u8 = 255;

/// The row, with what was counted; addresses are filled in by the connection table.
pub fn row(tcp: &Tcp, counters: &Counters, content: &Content, roles_from: RolesFrom) -> ConnectionRow {
    let h2 = &content.http2;
    let (client, server) = (h2.client, 1 - h2.client);
    let both = |count: [u32; 2]| (count[client], count[server]);
    let (packets_client, packets_server) = both(counters.packets);
    let goaway = |side: usize| h2.sides[side].goaway.map_or(NOT_KNOWN, |goaway| i64::from(goaway.code));
    let roles_from = match roles_from {
        RolesFrom::Ports if h2.roles_certain => RolesFrom::Http2,
        from => from,
    };
    ConnectionRow {
        opened_time_ns: tcp.syn_time.or(tcp.syn_ack_time).unwrap_or(NOT_KNOWN),
        closed_time_ns: tcp.closed_at().map_or(NOT_KNOWN, |at| at.time),
        first_time_ns: tcp.first.time,
        last_time_ns: tcp.last.time,
        first_packet: tcp.first.packet,
        last_packet: tcp.last.packet,
        handshake_rtt_ns: handshake_rtt(tcp),
        min_rtt_ns: min_rtt(tcp.transport.near_rtt),
        near_client_rtt_ns: tcp.transport.near_rtt[client],
        near_server_rtt_ns: tcp.transport.near_rtt[server],
        vantage: roles::vantage(tcp, client) as u8,
        roles_from: roles_from as u8,
        client_side: client as u8,
        protocol: h2.protocol as u8,
        complete: u8::from(tcp.opening_seen),
        unheard: u8::from(tcp.is_unheard(client)) | u8::from(tcp.is_unheard(server)) << 1,
        tls: u8::from(content.tls.is_some() || h2.protocol == Protocol::Tls),
        closed_by: closed_by(tcp, client),
        mss_client: tcp.halves[client].segment_size(&tcp.halves[server]),
        mss_server: tcp.halves[server].segment_size(&tcp.halves[client]),
        client_agent: h2.application.client_agent.unwrap_or(u32::MAX),
        server_agent: h2.application.server_agent.unwrap_or(u32::MAX),
        client_hint: h2.sides[client].implementation as u8,
        server_hint: h2.sides[server].implementation as u8,
        rpcs: h2.application.rpcs,
        retries: h2.application.retries,
        max_concurrent_rpcs: h2.application.max_open_rpcs,
        other_streams: h2.application.other_streams,
        peer_max_concurrent_streams: h2.sides[server].announced.max_concurrent_streams.map_or(NOT_KNOWN, i64::from),
        packets_client,
        packets_server,
        bytes_client: counters.bytes[client],
        bytes_server: counters.bytes[server],
        client_sequence: tcp.halves[client].first_sequence(),
        server_sequence: tcp.halves[server].first_sequence(),
        congestion_after_loss_ns: h2.application.loss.reduced_window_ns,
        loss_recovery_in_outages_ns: h2.application.loss.outage_ns,
        retransmission_timeouts: counters.timeouts,
        recovery_ns: counters.recovery.ns,
        recovery_time_ns: counters.recovery.to.time,
        recovery_from_packet: counters.recovery.from_packet,
        recovery_to_packet: counters.recovery.to.packet,
        recovery_direction: h2.direction(counters.recovery.side),
        outage_ns: counters.outage.ns,
        outage_time_ns: counters.outage.to_time,
        outage_from_packet: counters.outage.from_packet,
        outage_to_packet: counters.outage.to_packet,
        outage_direction: h2.direction(counters.outage.side),
        retransmitted_packets: counters.retransmitted,
        duplicate_packets: counters.duplicates,
        needless_retransmissions: counters.needless,
        keep_alives: counters.keep_alives,
        out_of_order_packets: counters.out_of_order,
        urgent_packets: counters.urgent,
        missing_bytes: counters.missing_bytes,
        payload_bytes: counters.payload_bytes,
        decoded_bytes: h2.bytes.decoded,
        retransmitted_bytes: counters.retransmitted_bytes,
        not_http2_bytes: h2.bytes.not_http2,
        encrypted_bytes: h2.bytes.encrypted,
        undecoded_bytes: h2.bytes.undecoded,
        undelivered_bytes: h2.bytes.undelivered,
        goaway_client: goaway(client),
        goaway_server: goaway(server),
        ..tls(content)
    }
}

/// The row that says how the connection was set up.
pub fn setup_row(tcp: &Tcp, content: &Content) -> SetupRow {
    let (client, server) = (content.http2.client, 1 - content.http2.client);
    let first = |side: usize| content.beginnings[side];
    let settings = |side: usize| place(content.http2.sides[side].settings_at);
    let (syn_ack_packet, syn_ack_time_ns) = place(tcp.syn_ack);
    let (reset_packet, reset_time_ns) = place(tcp.reset);
    let (client_packet, client_time_ns) = place(first(client).map(|first| first.at));
    let (server_packet, server_time_ns) = place(first(server).map(|first| first.at));
    let (client_settings_packet, client_settings_time_ns) = settings(client);
    let (server_settings_packet, server_settings_time_ns) = settings(server);
    let alert = content.alert();
    let (alert_packet, alert_time_ns) = place(alert.map(|alert| alert.at));
    let health = content.http2.application.health;
    let (health_packet, health_time_ns) = place(health.map(|health| health.at));
    SetupRow {
        syns: tcp.syns,
        syn_ack_packet,
        syn_ack_time_ns,
        closed_packet: place(tcp.closed_at()).0,
        reset_packet,
        reset_time_ns,
        client_packet,
        client_time_ns,
        client_begins: first(client).map_or(0, |first| first.kind),
        server_packet,
        server_time_ns,
        server_begins: first(server).map_or(0, |first| first.kind),
        http1_status: first(server).map_or(0, |first| first.http1_status),
        client_settings_packet,
        client_settings_time_ns,
        server_settings_packet,
        server_settings_time_ns,
        alert: alert.map_or(NO_ALERT, |alert| alert.description),
        alert_by: alert.map_or(NO_ALERT, |alert| u8::from(alert.side != client)),
        alert_packet,
        alert_time_ns,
        health: health.map_or(health::NONE, |health| health.status),
        health_packet,
        health_time_ns,
    }
}

/// What is known of its TLS.
fn tls(content: &Content) -> ConnectionRow {
    let unknown = ConnectionRow {
        tls_handshake_ns: NOT_KNOWN,
        tls_resumed: 2,
        tls_hello_time_ns: NOT_KNOWN,
        tls_server_hello_ns: NOT_KNOWN,
        ..ConnectionRow::default()
    };
    let Some(tls) = &content.tls else { return unknown };
    let facts = tls.facts();
    let hello = facts.client_hello;
    let (tls_hello_packet, tls_hello_time_ns) = place(hello);
    let answered = hello.zip(facts.server_hello).map(|(hello, answer)| answer.time.saturating_sub(hello.time).max(0));
    ConnectionRow {
        tls_version: facts.version.map_or(0, u32::from),
        tls_handshake_ns: tls.handshake_ns().unwrap_or(NOT_KNOWN),
        tls_decrypted: u8::from(tls.is_decrypted()),
        tls_suite: facts.suite.map_or(0, u32::from),
        tls_alpn: alpn(facts),
        tls_resumed: facts.resumed.map_or(2, u8::from),
        tls_retried: u8::from(facts.retried),
        tls_exact: u8::from(facts.is_exact),
        tls_hello_packet,
        tls_hello_time_ns,
        tls_server_hello_ns: answered.unwrap_or(NOT_KNOWN),
        tls_finished_packet: place(facts.client_finished).0,
        ..unknown
    }
}

/// What was negotiated by ALPN: 1 the client offers protocols, 2 h2 among them, 4 the server's choice is known, 8 it is
/// h2, 16 it is none.
fn alpn(facts: &Facts<At>) -> u8 {
    let chosen = facts.alpn.as_ref();
    [
        facts.offers().next().is_some(),
        facts.offers().any(|name| name == b"h2"),
        chosen.is_some(),
        chosen.is_some_and(|name| name == b"h2"),
        chosen.is_some_and(Vec::is_empty),
    ]
    .into_iter()
    .zip([1, 2, 4, 8, 16])
    .map(|(is, bit)| u8::from(is) * bit)
    .sum()
}

/// The direction that closed first, 2 while the connection is not over.
fn closed_by(tcp: &Tcp, client: usize) -> u8 {
    match (tcp.closed_at(), tcp.closed_by) {
        (Some(_), Some(side)) => u8::from(side != client),
        _ => 2,
    }
}

/// Both halves of the handshake, unless the clock stepped back in one of them.
fn handshake_rtt(tcp: &Tcp) -> i64 {
    match tcp.handshake {
        Some((server, client)) if server >= 0 && client >= 0 => server.saturating_add(client),
        _ => NOT_KNOWN,
    }
}

/// Both halves of the path together; the known one alone when the other was never measured.
fn min_rtt(near: [i64; 2]) -> i64 {
    match near {
        [a, b] if a >= 0 && b >= 0 => a + b,
        [a, b] => a.max(b),
    }
}
