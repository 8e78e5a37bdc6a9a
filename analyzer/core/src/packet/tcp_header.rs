//! The TCP header (RFC 9293 section 3.1).

use super::bytes::Header;
use super::outcome::{Layer, Outcome, Problem};
use super::segment::{Segment, TcpFlags};
use super::step::Found;
use super::tcp_options::Options;

mod field {
    pub const LENGTH: usize = 20;
    pub const SOURCE_PORT: usize = 0;
    pub const DESTINATION_PORT: usize = 2;
    pub const SEQUENCE: usize = 4;
    pub const ACKNOWLEDGEMENT: usize = 8;
    pub const OFFSET_AND_FLAGS: usize = 12;
    pub const WINDOW: usize = 14;
    pub const URGENT: usize = 18;
}

const FLAGS: u16 = 0x0fff;

/// Reads the header that was found, away from the path of nearly all packets.
#[inline(never)]
pub(super) fn dissect(found: Found<'_>) -> Outcome<'_> {
    read(found)
}

/// Reads the header that was found. Cut inside its options, it still yields a segment. Compiled into its callers, so
/// that what the layers before it found stays in registers.
#[inline(always)]
pub(super) fn read(found: Found<'_>) -> Outcome<'_> {
    let view = found.view;
    let (header, rest) = match view.split::<{ field::LENGTH }>(Layer::Tcp) {
        Ok(split) => split,
        Err(malformed) => return Outcome::Malformed(malformed),
    };
    let offset_and_flags = header.be16::<{ field::OFFSET_AND_FLAGS }>();
    let header_len = (offset_and_flags >> 12) * 4;
    let options_len = match usize::from(header_len).checked_sub(field::LENGTH) {
        Some(length) if u32::from(header_len) <= view.wire_len => length,
        _ => {
            let problem = Problem::HeaderLength(header_len);
            return Outcome::Malformed(view.malformed(Layer::Tcp, problem));
        }
    };
    let (captured_options, payload) = rest.bytes.split_at_checked(options_len).unwrap_or((rest.bytes, &[]));
    let cut = captured_options.len() < options_len;
    let parts = Parts { found, header, payload, payload_len: view.wire_len - u32::from(header_len), cut };
    match Options::usual(captured_options) {
        Some(timestamps) => Outcome::Tcp(segment(&parts, &Options { timestamps, ..Options::default() })),
        None => unusual(parts, captured_options),
    }
}

/// What a segment is made of, but for its options.
#[derive(Clone, Copy)]
struct Parts<'a> {
    found: Found<'a>,
    header: Header<'a, { field::LENGTH }>,
    payload: &'a [u8],
    payload_len: u32,
    cut: bool,
}

#[inline(never)]
fn unusual<'a>(parts: Parts<'a>, options: &[u8]) -> Outcome<'a> {
    Outcome::Tcp(segment(&parts, &Options::any(options, parts.cut)))
}

#[inline(always)]
fn segment<'a>(parts: &Parts<'a>, options: &Options) -> Segment<'a> {
    let &Parts { found: Found { network, context, .. }, header, payload, payload_len, cut } = parts;
    Segment {
        source: network.source,
        destination: network.destination,
        source_port: header.be16::<{ field::SOURCE_PORT }>(),
        destination_port: header.be16::<{ field::DESTINATION_PORT }>(),
        seq: header.be32::<{ field::SEQUENCE }>(),
        ack: header.be32::<{ field::ACKNOWLEDGEMENT }>(),
        flags: TcpFlags(header.be16::<{ field::OFFSET_AND_FLAGS }>() & FLAGS),
        window: header.be16::<{ field::WINDOW }>(),
        urgent: header.be16::<{ field::URGENT }>(),
        mss: options.mss,
        window_scale: options.window_scale,
        sack_permitted: options.sack_permitted,
        sack: options.sack,
        timestamps: options.timestamps,
        options_malformed: options.malformed,
        options_cut: cut,
        payload,
        payload_len,
        ip_id: network.ip_id,
        ttl: network.ttl,
        ecn: network.ecn,
        tunnel: context.tunnel,
        packet_direction: context.direction,
        cooked_interface: context.interface,
    }
}
