//! What may stand before the first bytes of a connection's own protocol: a PROXY protocol header (haproxy.org,
//! proxy-protocol.txt, versions 1 and 2), or an HTTP/1.1 CONNECT and its answer (RFC 9110 section 9.3.6).

/// The signature of a PROXY protocol header of version 2.
pub const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest header of version 1, its line end included.
const LONGEST_LINE: usize = 107;

/// Length of what `bytes`, the first of a side, have before the protocol; 0 when there is none, or not all of it.
/// `tunnel` says that the other side has asked for a tunnel.
pub fn length(bytes: &[u8], tunnel: bool) -> usize {
    match bytes {
        [b'\r', ..] => proxy_header(bytes),
        [b'P', b'R', b'O', b'X', b'Y', b' ', ..] => proxy_line(bytes),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', _, b' ', b'2', ..] if tunnel => head(bytes),
        _ if asks_tunnel(bytes) => head(bytes),
        _ => 0,
    }
}

/// Whether a side asks for a tunnel.
pub fn asks_tunnel(bytes: &[u8]) -> bool {
    bytes.starts_with(b"CONNECT ")
}

/// Version 2: its version is the high half of the octet behind the signature, the length of the rest is in the last two.
fn proxy_header(bytes: &[u8]) -> usize {
    match bytes.strip_prefix(SIGNATURE) {
        Some([version, _, high, low, ..]) if version >> 4 == 2 => {
            let length = SIGNATURE.len() + 4 + usize::from(u16::from_be_bytes([*high, *low]));
            if length <= bytes.len() { length } else { 0 }
        }
        _ => 0,
    }
}

fn proxy_line(bytes: &[u8]) -> usize {
    let line = bytes.get(..LONGEST_LINE.min(bytes.len())).unwrap_or_default();
    line.windows(2).position(|octets| octets == b"\r\n").map_or(0, |at| at + 2)
}

fn head(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|octets| octets == b"\r\n\r\n").map_or(0, |at| at + 4)
}

/// The same without addresses, names and fields, as long as before.
pub fn shape(bytes: &[u8]) -> Vec<u8> {
    let (front, filler, end): (&[u8], u8, &[u8]) = match bytes {
        [b'\r', ..] => (bytes.get(..SIGNATURE.len() + 4).unwrap_or_default(), 0, b""),
        [b'P', ..] => (b"PROXY UNKNOWN", b' ', b"\r\n"),
        [b'H', ..] => (bytes.get(..12).unwrap_or_default(), b'x', b"\r\n\r\n"),
        _ => (b"CONNECT x:1 HTTP/1.1\r\n", b'x', b"\r\n\r\n"),
    };
    let mut out = vec![filler; bytes.len()];
    for (from, part) in [(0, front), (bytes.len().saturating_sub(end.len()), end)] {
        out.iter_mut().skip(from).zip(part).for_each(|(room, octet)| *room = *octet);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x0a\x01\x01\x01\x0a\x01\x01\xfe\xa4\x70\x1f\x90PRI";
    const LINE: &[u8] = b"PROXY TCP4 10.0.0.1 10.0.0.2 42106 8080\r\nPRI";
    const ASK: &[u8] = b"CONNECT secret.acme:443 HTTP/1.1\r\nHost: secret.acme\r\n\r\n";
    const YES: &[u8] = b"HTTP/1.0 200 Connection established\r\nProxy-agent: secret\r\n\r\n";

    #[test]
    fn ends_where_the_protocol_begins() {
        assert_eq!(length(V2, false), V2.len() - 3);
        assert_eq!(length(LINE, false), LINE.len() - 3);
        assert_eq!(length(ASK, false), ASK.len());
        assert_eq!(length(YES, true), YES.len());
    }

    #[test]
    fn is_none_in_part_or_of_others() {
        for whole in [V2, LINE, ASK] {
            let end = length(whole, false);
            assert!((0..end).all(|cut| length(&whole[..cut], false) == 0));
        }
        assert_eq!(length(YES, false), 0, "nobody asked for a tunnel");
        for other in [&b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"[..], b"GET / HTTP/1.1\r\n\r\n"] {
            assert_eq!(length(other, true), 0);
        }
        let version_1 = [&SIGNATURE[..], b"\x11\x11\0\0"].concat();
        assert_eq!(length(&version_1, false), 0);
        assert_eq!(length(&[b"PROXY ".to_vec(), vec![b'x'; 200], b"\r\n".to_vec()].concat(), false), 0);
    }

    #[test]
    fn keeps_its_length_without_what_it_says() {
        for (bytes, tunnel) in [(V2, false), (LINE, false), (ASK, false), (YES, true)] {
            let whole = &bytes[..length(bytes, tunnel)];
            let shaped = shape(whole);
            assert_eq!(length(&shaped, tunnel), whole.len());
            assert_eq!(shaped.len(), whole.len());
            let tells = |text: &[u8]| shaped.windows(text.len()).any(|octets| octets == text);
            assert!(!tells(b"secret") && !tells(b"10.0") && !tells(&[10, 1, 1]));
        }
    }
}
