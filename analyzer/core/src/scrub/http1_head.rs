//! HTTP/1 heads: of an upgrade to h2c (RFC 7540 section 3.2) what HTTP/2 goes on from; of others that they are HTTP/1.

use crate::grpc::protocol::Content;
use crate::http2::connection::detect;

use super::control;
use super::fields::{self, Around};
use super::replace::{Kind, Part};
use super::shared::Shared;

/// The head of an upgrade request or of its answer with its free texts replaced, line by line.
pub(super) fn upgrade(head: &[u8], shared: &mut Shared) -> Vec<u8> {
    let content = detect::http1_head(head).map(|head| Content::from_header(&head.content_type));
    let is_rpc = content.is_some_and(|content| content.opens(false).is_rpc());
    let around = Around { other_content: !is_rpc, hide_methods: shared.hide_methods };
    let mut out = Vec::with_capacity(head.len());
    for (nth, line) in head.split_inclusive(|&c| c == b'\n').enumerate() {
        let bare = line.trim_ascii_end();
        let end = line.get(bare.len()..).unwrap_or_default();
        out.extend(if nth == 0 { first_line(bare, around, shared) } else { field(bare, shared) });
        out.extend(end);
    }
    out
}

/// `POST /a.B/C HTTP/1.1` or `HTTP/1.1 101 Switching Protocols`: what is between is the path.
fn first_line(line: &[u8], around: Around, shared: &mut Shared) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    for word in line.split_inclusive(|&c| c == b' ') {
        let (bare, space) = match word {
            [bare @ .., b' '] => (bare, &b" "[..]),
            _ => (word, &b""[..]),
        };
        let stays = [&b"GET"[..], b"POST", b"OPTIONS", b"HTTP/1.1", b"101", b"Switching", b"Protocols"].contains(&bare);
        let (kind, parts) = fields::parts(Some(b":path"), bare, around);
        out.extend(if stays { bare.to_vec() } else { shared.replacer.replace(kind, &parts, false) });
        out.extend(space);
    }
    out
}

fn field(line: &[u8], shared: &mut Shared) -> Vec<u8> {
    let Some(colon) = line.iter().position(|&c| c == b':') else { return vec![b'x'; line.len()] };
    let (name, value) = line.split_at(colon);
    let lower = name.to_ascii_lowercase();
    if let Some(shown) = known_value(&lower, value, shared) {
        return [name, &shown].concat();
    }
    let name = if fields::is_standard(&lower, crate::http2::hpack::is_static_name(&lower)) {
        name.to_vec()
    } else {
        shared.replacer.replace(Kind::Name, &[Part::Hidden(&lower)], false)
    };
    let text = value.get(1..).unwrap_or_default();
    [name, b":".to_vec(), shared.replacer.replace(Kind::Value, &[Part::Hidden(text)], false)].concat()
}

/// The value, with the colon before it, of a field that an upgrade needs: as much of it as the upgrade does.
fn known_value(name: &[u8], value: &[u8], shared: &mut Shared) -> Option<Vec<u8>> {
    let bare = value.get(1..)?.trim_ascii();
    let from = bare.as_ptr().addr() - value.as_ptr().addr();
    let (front, behind) = (value.get(..from)?, value.get(from + bare.len()..)?);
    let is_option = |word: &[u8]| CONNECTION_OPTIONS.iter().any(|option| word.eq_ignore_ascii_case(option));
    let hidden = || vec![b'x'; bare.len()];
    let shown = match name {
        b"upgrade" if bare.eq_ignore_ascii_case(b"h2c") => bare.to_vec(),
        b"connection" if bare.split(|&c| c == b',').all(|word| is_option(word.trim_ascii())) => bare.to_vec(),
        b"http2-settings" => known_settings(bare),
        b"content-length" | b"content-type" => {
            let (kind, parts) = fields::parts(Some(name), bare, Around::default());
            shared.replacer.replace(kind, &parts, false)
        }
        b"upgrade" | b"connection" => hidden(),
        _ => return None,
    };
    Some([front, &shown, behind].concat())
}

/// Options of `Connection` that tell nothing of the application.
const CONNECTION_OPTIONS: [&[u8]; 4] = [b"upgrade", b"http2-settings", b"keep-alive", b"close"];

/// `HTTP2-Settings` with the values of known settings, as many characters as before.
fn known_settings(text: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let Some(payload) = detect::base64url(text) else { return vec![b'='; text.len()] };
    let mut octets = control::settings(&payload);
    octets.resize(payload.len(), 0);
    let bit = |nth: usize| octets.get(nth / 8).map_or(0, |octet| octet >> (7 - nth % 8) & 1);
    let mut digits = (0..).map(|nth| (nth * 6..nth * 6 + 6).fold(0, |digit, at| digit << 1 | bit(at)));
    let mut character = |_| DIGITS.get(usize::from(digits.next().unwrap_or(0))).copied().unwrap_or(b'A');
    text.iter().map(|c| if *c == b'=' { b'=' } else { character(c) }).collect()
}

/// Of a head of `length` octets, 0 when its end is not there, what tells HTTP/1: `HTTP/1.` with a status, or a token of
/// capitals and a space; and its end.
pub(super) fn shape(bytes: &[u8], length: usize) -> Vec<u8> {
    let mut out = vec![0; length.max(17).min(bytes.len())];
    let token = bytes.iter().take_while(|c| c.is_ascii_uppercase()).count();
    let mark = match bytes {
        // with the version's digit and the status code, which nobody chose freely
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor, b' ', a, b, c, ..]
            if [minor, a, b, c].iter().all(|octet| octet.is_ascii_digit()) =>
        {
            bytes.get(..12).unwrap_or_default().to_vec()
        }
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', ..] => b"HTTP/1.".to_vec(),
        _ => [vec![b'X'; token], b" ".to_vec()].concat(),
    };
    if let Some(room) = out.get_mut(..mark.len()) {
        room.copy_from_slice(&mark);
    }
    // a first line has two words at least
    let line = bytes.iter().take_while(|&&c| c != b'\n').take(out.len());
    if let Some(room) = line.clone().position(|&c| c == b' ').and_then(|at| out.get_mut(at)) {
        *room = b' ';
    }
    if let Some(room) = length.checked_sub(4).and_then(|end| out.get_mut(end..length)) {
        room.copy_from_slice(b"\r\n\r\n");
    }
    out
}

/// First bytes that do not tell yet what they are, as others that do not.
pub(super) fn undecided(bytes: &[u8]) -> Vec<u8> {
    let begins = |whole: &[u8]| whole.starts_with(bytes.get(..whole.len().min(bytes.len())).unwrap_or_default());
    if begins(detect::PREFACE) || begins(b"HTTP/1.") || begins(&[0x16, 3, 3]) {
        return bytes.get(..detect::PREFACE.len().min(bytes.len())).map_or_else(Vec::new, |known| match known {
            [b'P' | 0x16, ..] => known.to_vec(),
            _ => shape(bytes, 0),
        });
    }
    if bytes.iter().take(9).all(u8::is_ascii_uppercase) {
        return vec![b'X'; bytes.len().min(9)];
    }
    match detect::opening(bytes) {
        detect::Opening::Http1Request => shape(bytes, 0),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::replace::Replacer;
    use super::*;

    fn shared() -> Shared {
        Shared { replacer: Replacer::new(b"key"), hide_methods: false, reasons: Vec::new(), end_bytes: 0 }
    }

    #[test]
    fn upgrades_stay_upgrades() {
        let head =
            b"POST /a.B/C HTTP/1.1\r\nHost: secret.acme\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
            Content-Type: application/grpc\r\nX-Secret: hunter2\r\nHTTP2-Settings: AAMAAABkAAQAoAAA\r\n\r\n";
        let scrubbed = upgrade(head, &mut shared());
        let (before, after) = (detect::http1_head(head).unwrap(), detect::http1_head(&scrubbed).unwrap());
        assert_eq!(before, after);
        let text = String::from_utf8_lossy(&scrubbed).to_lowercase();
        assert!(!text.contains("secret") && !text.contains("hunter2"), "{text}");
        let rare = b"POST /a.B/C HTTP/1.1\r\nConnection: hunter2hunter2\r\nUpgrade: hunter2hunter2\r\nUpgrade: h2c\r\n\
            Content-Type: hunter2hunter2\r\nContent-Length:  hunter2hunter2\r\nHTTP2-Settings: GiphdW50ZXIy\r\n\
            \r\n";
        let broken = [&rare[..rare.len() - 2], b"hunter2\r\n:hunter2\r\n\r\n"].concat();
        let upgrades = |head: &[u8]| detect::http1_head(head).map(|head| head.upgrade_h2c);
        for (head, is_upgrade) in [(&rare[..], true), (&broken, false)] {
            let scrubbed = upgrade(head, &mut shared());
            assert_eq!(scrubbed.len(), head.len());
            let text = String::from_utf8_lossy(&scrubbed);
            assert!(!text.contains("unter") && !text.contains("dW50Z"), "{text}");
            assert_eq!((upgrades(head), upgrades(&scrubbed)), (Some(is_upgrade), Some(is_upgrade)), "{text}");
        }
        let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";
        assert_eq!(upgrade(answer, &mut shared()), answer);
    }

    #[test]
    fn what_does_not_tell_does_not_afterwards() {
        let bytes =
            [&b"PRI * HTTP/2.0\r\n"[..], b"HTTP", b"\x16\x03", b"POST", b"GET /secret", b"\0\0", b"HTTP/1.1 20"];
        for bytes in bytes {
            let mut after = undecided(bytes);
            after.resize(bytes.len(), 0);
            assert_eq!(detect::opening(&after), detect::opening(bytes), "{bytes:?}");
            assert!(!after.windows(6).any(|window| window == b"secret"));
        }
    }

    #[test]
    fn other_heads_keep_their_shape_alone() {
        for head in [&b"GET /secret HTTP/1.1\r\nHost: a\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n"] {
            let scrubbed = shape(head, head.len());
            assert_eq!(scrubbed.len(), head.len());
            assert_eq!(detect::opening(&scrubbed), detect::opening(head));
            assert_eq!(detect::http1_head(&scrubbed).map(|h| h.length), Some(head.len()));
        }
    }
}
