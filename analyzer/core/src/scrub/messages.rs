//! The five octets before each gRPC message, which stay, and the message behind them, which does not.

use crate::at::At;
use crate::grpc::message::{PREFIX_LEN, Reader};

use super::edits::Edits;

/// Neither 0 nor 1, the flags a message may have, nor that of an RPC's end: a reader sees that no message begins here.
const NO_FLAG: u8 = 0x04;

/// Keeps the prefixes in DATA that `reader` reads next, the first octet of it at `position`. Where messages cannot be
/// told, a frame that `begins` says so, for a reader looks there for the next one. `end` takes what begins with no
/// message, and where it does, if it is the RPC's end.
pub(super) fn put_prefixes(
    reader: &Reader,
    data: &[u8],
    begins: bool,
    position: i64,
    edits: &mut Edits,
    end: impl FnOnce(&[u8], i64) -> bool,
) {
    let (mut reader, mut data, mut position) = (*reader, data, position);
    if reader.is_lost() && begins {
        edits.put(position, &[NO_FLAG]);
    }
    while let Some(&first) = data.first().filter(|_| !reader.is_lost()) {
        let owed = if reader.is_inside() { reader.owed() } else { u32::from(PREFIX_LEN) };
        let (part, rest) = data.split_at(data.len().min(owed as usize));
        let is_body = reader.is_inside() && reader.lacks(owed);
        if !reader.is_inside() && first > 1 {
            if !end(data, position) {
                edits.put(position, &[NO_FLAG]);
            }
            return;
        } else if !is_body {
            edits.put(position, part);
        }
        reader.feed(part, At::default(), &mut |_| {});
        (data, position) = (rest, position + part.len() as i64);
    }
}

/// Keeps what looks like the beginning of messages in the first octets of a DATA frame of `length` octets: all that
/// tells a stream from before the capture (see `grpc::probe`). Where none can begin, it says so.
pub(super) fn put_beginnings(octets: &[u8], length: u32, position: i64, edits: &mut Edits) {
    let (mut at, length) = (0_usize, length as usize);
    while at < length {
        let Some(prefix) = octets.get(at..).and_then(|rest| rest.first_chunk::<5>()) else { return };
        let &[flag, a, b, c, d] = prefix;
        let message = u32::from_be_bytes([a, b, c, d]);
        if flag > 1 || (message == 0 && length > usize::from(PREFIX_LEN)) {
            return edits.put(position + at as i64, &[NO_FLAG]);
        }
        edits.put(position + at as i64, prefix);
        at = at.saturating_add(usize::from(PREFIX_LEN)).saturating_add(message as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stays of pieces that follow each other, `.` for zero; of a piece behind `#` nothing was captured.
    fn kept(pieces: &[&[u8]]) -> Vec<u8> {
        let (mut reader, mut edits, mut position) = (Reader::default(), Edits::default(), 0);
        for piece in pieces {
            if let [b'#', gone @ ..] = piece {
                reader.skip(gone.len() as u32);
                position += gone.len() as i64;
                continue;
            }
            put_prefixes(&reader, piece, false, position, &mut edits, |_, _| false);
            reader.feed(piece, At::default(), &mut |_| {});
            position += piece.len() as i64;
        }
        edits.finish();
        let mut out = vec![b'.'; position as usize];
        edits.apply(0, &mut out);
        out
    }

    #[test]
    fn prefixes_stay_wherever_they_are_cut() {
        let data = b"\0\0\0\0\x03abc\x01\0\0\0\0\0\0\0\0\x02de\0\0";
        let expected = b"\0\0\0\0\x03...\x01\0\0\0\0\0\0\0\0\x02..\0\0";
        for cut in 0..data.len() {
            let (front, back) = data.split_at(cut);
            assert_eq!(kept(&[front, back]), expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_message_is_zeroed_and_still_none() {
        assert_eq!(kept(&[b"<html>", b"\0\0\0\0\x01"]), b"\x04..........");
    }

    #[test]
    fn a_gap_in_a_message_is_bridged_and_any_other_is_not() {
        let pieces = [&b"\0\0\0\0\x09ab"[..], b"#123456", b"c\0\0\0\0\x01d", b"#123", b"\0\0\0\0\x01"];
        assert_eq!(kept(&pieces), b"\0\0\0\0\x09.........\0\0\0\0\x01.........");
    }

    #[test]
    fn a_frame_without_a_boundary_has_none_afterwards() {
        let (mut reader, mut edits) = (Reader::default(), Edits::default());
        reader.lose();
        put_prefixes(&reader, b"secret secret", true, 0, &mut edits, |_, _| false);
        edits.finish();
        let mut out = [0; 13];
        edits.apply(0, &mut out);
        reader.resume(&out, Some(13));
        assert!(reader.is_lost());
        assert!(!out.windows(2).any(|two| two == b"se"));
    }
}
