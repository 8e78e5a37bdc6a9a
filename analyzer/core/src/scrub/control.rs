//! Payloads of control frames: what RFC 9113 defines stays, free octets do not.

use crate::grpc::known_texts;
use crate::http2::frame::header::{FrameHeader, FrameType, HEADER_LEN, flag};
use crate::http2::frame::ping::Purpose;
use crate::http2::observe::implementation::Implementation;

use super::replace::Key;

/// A frame header: what its type does not define is cleared, so that octets that are none survive as one in pieces only.
/// Of a frame of an unknown type the length stays, and the type if it is registered: ALTSVC, ORIGIN, PRIORITY_UPDATE.
pub(super) fn header(header: FrameHeader) -> [u8; HEADER_LEN] {
    const UNASSIGNED: u8 = 0x0b;
    let ([_, a, b, c], FrameType(kind)) = (header.length().to_be_bytes(), header.kind());
    if !header.kind().is_known() {
        let kind = if matches!(kind, 0x0a | 0x0c | 0x10) { kind } else { UNASSIGNED };
        return [a, b, c, kind, 0, 0, 0, 0, 0];
    }
    let [d, e, f, g] = header.stream.to_be_bytes();
    [a, b, c, kind, header.flags() & header.kind().defined_flags(), d, e, f, g]
}

/// What stands for octets that might have been a header: nothing of them but the length that they tell.
pub(super) fn possible_header(length: u32) -> [u8; HEADER_LEN] {
    let [_, a, b, c] = length.to_be_bytes();
    // an empty frame is one only if it ends its stream
    let flags = if length == 0 { flag::END_STREAM } else { 0 };
    [a, b, c, FrameType::DATA.0, flags, 0, 0, 0, 1]
}

/// Settings that are defined (RFC 9113 section 6.5.2, RFC 8441, RFC 9218), and C-core's own, 0xfe03 to 0xfe05.
fn is_setting(id: u16) -> bool {
    matches!(id, 1..=6 | 8 | 9 | 0xfe03..=0xfe05)
}

/// Known settings stay; of others the identifier.
pub(super) fn settings(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len());
    for (id, value) in crate::http2::frame::settings::pairs(payload) {
        out.extend(id.to_be_bytes());
        out.extend(if is_setting(id) { value } else { 0 }.to_be_bytes());
    }
    out
}

/// The eight octets of a PING stay where they are an implementation's constant; else they are replaced by others, the
/// same for the same ones, that are no constant either.
pub(super) fn ping(payload: &[u8], key: &Key) -> Vec<u8> {
    let Ok(octets) = <[u8; 8]>::try_from(payload) else { return Vec::new() };
    let is_known = |octets| {
        Purpose::from_payload(octets).is_some() || Implementation::from_ping(octets) != Implementation::Unknown
    };
    if octets == [0; 8] || is_known(octets) {
        return payload.to_vec();
    }
    let mut replaced = octets;
    for nth in 0..=u8::MAX {
        replaced = key.number(&[b"ping", &octets, &[nth]]).to_be_bytes();
        if !is_known(replaced) {
            break;
        }
    }
    replaced.to_vec()
}

/// Last stream and error code stay, and a debug text that is an implementation's own; other texts are noted in `hidden`.
pub(super) fn goaway(payload: &[u8], hidden: &mut Vec<String>) -> Vec<u8> {
    let (fields, text) = payload.split_at_checked(8).unwrap_or((payload, &[]));
    if known_texts::is_of_goaway(text) {
        return payload.to_vec();
    }
    let text = String::from_utf8_lossy(text).into_owned();
    if hidden.len() < crate::limits::GOAWAY_REASONS && !hidden.contains(&text) {
        hidden.push(text);
    }
    fields.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_pings_stay_and_free_octets_do_not() {
        let key = Key::new(b"key");
        let go = [2, 4, 16, 16, 9, 14, 7, 7];
        assert_eq!(ping(&go, &key), go);
        assert_eq!(ping(&[0; 8], &key), [0; 8]);
        assert_eq!(ping(&1234_u64.to_be_bytes(), &key), 1234_u64.to_be_bytes());
        let free = ping(b"password", &key);
        assert!(free != b"password" && free.len() == 8);
        assert_eq!(ping(b"password", &key), free, "an acknowledgement must match");
    }

    #[test]
    fn goaways_keep_known_texts() {
        let mut hidden = Vec::new();
        let frame = |text: &[u8]| [&[0, 0, 0, 3, 0, 0, 0, 11], text].concat();
        assert_eq!(goaway(&frame(b"too_many_pings"), &mut hidden), frame(b"too_many_pings"));
        assert_eq!(goaway(&frame(b"host db7 leaves"), &mut hidden), frame(b""));
        assert_eq!(hidden, ["host db7 leaves"]);
    }

    #[test]
    fn headers_keep_what_is_defined() {
        assert_eq!(header(FrameHeader::parse(&[0, 0, 5, 0, 0xff, 0x80, 0, 0, 7])), [0, 0, 5, 0, 0x09, 0, 0, 0, 7]);
        assert_eq!(header(FrameHeader::parse(&[0, 0, 5, 1, 0xff, 0, 0, 0, 7])), [0, 0, 5, 1, 0x2d, 0, 0, 0, 7]);
        assert_eq!(header(FrameHeader::parse(b"hunter2!!")), [b'h', b'u', b'n', 0x0b, 0, 0, 0, 0, 0]);
        assert_eq!(header(FrameHeader::parse(&[0, 0, 5, 0x10, 1, 0, 0, 0, 7])), [0, 0, 5, 0x10, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn unknown_settings_lose_their_values() {
        assert_eq!(settings(&[0, 4, 0, 0, 0, 7, 0x1a, 0x2a, 1, 2, 3, 4]), [0, 4, 0, 0, 0, 7, 0x1a, 0x2a, 0, 0, 0, 0]);
    }
}
