//! Texts that gRPC implementations and proxies write themselves, word for word in their sources: nothing of the calls
//! can be read out of them, so they need not be hidden as other texts are.

use super::texts_of_software as texts;

/// Most digits of a number: one of 64 bits has 20 decimal ones.
const DIGITS: usize = 20;

/// The known part of a `grpc-message`, from its beginning; `None` for other texts.
pub fn find_error(value: &[u8]) -> Option<&[u8]> {
    find(texts::ERRORS, value)
}

/// Whether the debug data of a GOAWAY is a text of an implementation.
pub fn is_of_goaway(debug_data: &[u8]) -> bool {
    debug_data.is_empty() || find(texts::GOAWAYS, debug_data).is_some()
}

/// The part of `value` that one of `texts` describes.
fn find<'a>(texts: &[&str], value: &'a [u8]) -> Option<&'a [u8]> {
    texts.iter().find_map(|text| value.get(..count_matching(text.as_bytes(), value)?))
}

/// How many octets of `value` match `text`; they may be percent-encoded, as connect-es encodes spaces.
fn count_matching(text: &[u8], value: &[u8]) -> Option<usize> {
    let mut at = 0;
    for &octet in text {
        match octet {
            b'*' => return Some(at),
            b'#' => {
                let digits = value.get(at..)?.iter().take(DIGITS).take_while(|octet| octet.is_ascii_hexdigit()).count();
                at += digits;
                if digits == 0 {
                    return None;
                }
            }
            _ if value.get(at) == Some(&octet) => at += 1,
            b' ' if value.get(at..)?.starts_with(b"%20") => at += 3,
            _ => return None,
        }
    }
    (at == value.len()).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_as_far_as_it_is_known() {
        let find = |value: &str| find_error(value.as_bytes()).map(|kept| String::from_utf8_lossy(kept).into_owned());
        assert_eq!(find("upstream request timeout").as_deref(), Some("upstream request timeout"));
        assert_eq!(find("upstream request timeout of bob"), None);
        assert_eq!(find("Exception calling application: bob").as_deref(), Some("Exception calling application: "));
        let refused = "grpc: received message larger than max (5000000 vs. 4194304)";
        assert_eq!(find(refused).as_deref(), Some(refused));
        assert_eq!(find("grpc: received message larger than max (bob vs. 4194304)"), None);
        assert_eq!(find(&format!("grpc: received message larger than max ({} vs. 1)", "a".repeat(21))), None);
        let lost = "upstream connect error or disconnect/reset before headers. reset reason: remote connection failure";
        assert_eq!(find(&format!("{lost}, transport failure reason: 10.0.0.1")), Some(lost.to_owned()));
        let encoded = "message%20size%20200008%20is%20larger%20than%20configured%20readMaxBytes%20100000";
        assert_eq!(find(encoded).as_deref(), Some(encoded));
        assert_eq!(find(""), None);
        assert!(is_of_goaway(b"Connection [1f], Too much overhead so the connection will be closed"));
        assert!(!is_of_goaway(b"Connection of bob"));
        assert!(is_of_goaway(b"content too large: transferred(0 + 16384) > limit(5000) (stream: 3)"));
        assert_eq!(
            find("Content is compressed with `zstd` which isn't").as_deref(),
            Some("Content is compressed with ")
        );
    }
}
