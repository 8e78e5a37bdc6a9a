//! The TCP header (RFC 9293 section 3.1).

use super::Found;
use super::outcome::{Layer, Outcome, Problem};
use super::segment::{Segment, TcpFlags};
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

/// Reads the header that was found. Cut inside its options, it still yields a segment.
#[inline]
pub(super) fn dissect(found: Found<'_>) -> Outcome<'_> {
    let Found { view, network, context } = found;
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
    let options_cut = captured_options.len() < options_len;
    let options = Options::read(captured_options, options_cut);
    Outcome::Tcp(Segment {
        source: network.source,
        destination: network.destination,
        source_port: header.be16::<{ field::SOURCE_PORT }>(),
        destination_port: header.be16::<{ field::DESTINATION_PORT }>(),
        seq: header.be32::<{ field::SEQUENCE }>(),
        ack: header.be32::<{ field::ACKNOWLEDGEMENT }>(),
        flags: TcpFlags(offset_and_flags & FLAGS),
        window: header.be16::<{ field::WINDOW }>(),
        urgent: header.be16::<{ field::URGENT }>(),
        mss: options.mss,
        window_scale: options.window_scale,
        sack_permitted: options.sack_permitted,
        sack: options.sack,
        timestamps: options.timestamps,
        options_malformed: options.malformed,
        options_cut,
        payload,
        payload_len: view.wire_len - u32::from(header_len),
        ip_id: network.ip_id,
        ttl: network.ttl,
        ecn: network.ecn,
        tunnel: context.tunnel,
        packet_direction: context.direction,
        cooked_interface: context.interface,
    })
}
