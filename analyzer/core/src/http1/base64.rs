//! Decodes base64 as it comes, in both alphabets (RFC 4648 sections 4 and 5).

use serde::{Deserialize, Serialize};

/// The state between two pieces of a text.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Base64 {
    word: u32,
    bits: u8,
}

impl Base64 {
    /// Adds the octets that `text` completes to `out`; `false` when it is no base64. Behind padding a further text may begin,
    /// as gRPC-Web has it (PROTOCOL-WEB.md).
    pub fn decode(&mut self, text: &[u8], out: &mut Vec<u8>) -> bool {
        for &character in text {
            let digit = match character {
                b'A'..=b'Z' => character - b'A',
                b'a'..=b'z' => character - b'a' + 26,
                b'0'..=b'9' => character - b'0' + 52,
                b'-' | b'+' => 62,
                b'_' | b'/' => 63,
                b'=' => {
                    *self = Self::default();
                    continue;
                }
                _ => return false,
            };
            self.word = self.word << 6 | u32::from(digit);
            self.bits += 6;
            if self.bits >= 8 {
                self.bits -= 8;
                out.push((self.word >> self.bits) as u8);
                self.word &= (1 << self.bits) - 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_follow_one_another_behind_padding_however_they_are_cut() {
        let text = b"Zg==Zm8=Zm9vYmFy";
        for cut in 0..text.len() {
            let (mut decoder, mut out) = (Base64::default(), Vec::new());
            assert!(decoder.decode(&text[..cut], &mut out) && decoder.decode(&text[cut..], &mut out));
            assert_eq!(out, b"ffofoobar");
        }
        assert!(!Base64::default().decode(b"Zm9v!", &mut Vec::new()));
    }
}
