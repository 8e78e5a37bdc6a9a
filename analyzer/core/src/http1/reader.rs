//! Cuts the octets of one direction into heads and bodies. Bodies are read in place.

use serde::{Deserialize, Serialize};

use std::borrow::Cow;

use crate::limits;

use super::head::Body;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Nothing more until further octets come.
    Open,
    /// A whole head. [`Reader::begin_body`] says what is behind it; else it is another head.
    Head(Cow<'a, [u8]>),
    /// Octets of the body.
    Body(&'a [u8]),
    /// The body has ended.
    End,
    /// This is no HTTP/1.1.
    Broken,
}

/// What the next octet is part of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Part {
    #[default]
    Head,
    Length(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    UntilClose,
    Broken,
}

/// Reads one direction.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Reader {
    part: Part,
    /// The head, or the line of a chunked body, as far as it came.
    kept: Vec<u8>,
}

impl Reader {
    /// Whether the next octet begins a head.
    pub fn is_between(&self) -> bool {
        self.part == Part::Head && self.kept.is_empty()
    }

    /// Whether the end of the connection ends the body.
    pub fn is_until_close(&self) -> bool {
        self.part == Part::UntilClose
    }

    /// Passes over `length` octets that the capture lacks; `false` if they are not all of one body, or chunk.
    pub fn skip(&mut self, length: u64) -> bool {
        match &mut self.part {
            Part::Length(left) | Part::Chunk(left) if length <= *left => *left -= length,
            Part::UntilClose => {}
            _ => return false,
        }
        true
    }

    /// Behind the head that was read last is a body.
    pub fn begin_body(&mut self, body: Body) {
        self.part = match body {
            Body::Length(length) => Part::Length(length),
            Body::Chunked => Part::ChunkSize,
            Body::UntilClose => Part::UntilClose,
        };
    }

    /// Takes the next piece from the front of `bytes`.
    pub fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Piece<'a> {
        loop {
            if self.is_between()
                && let Some(head) = take_head(bytes)
            {
                return Piece::Head(Cow::Borrowed(head));
            }
            let next = match self.part {
                Part::Length(0) => return self.end(),
                Part::Chunk(0) => Part::ChunkEnd,
                Part::Length(left) => return take_body(bytes, left, |left| self.part = Part::Length(left)),
                Part::Chunk(left) => return take_body(bytes, left, |left| self.part = Part::Chunk(left)),
                Part::UntilClose => return take_body(bytes, u64::MAX, |_| {}),
                Part::Broken => return Piece::Broken,
                Part::Head | Part::ChunkSize | Part::ChunkEnd | Part::Trailers => match self.take_line(bytes) {
                    None if self.kept.len() < limits::HTTP1_HEAD => return Piece::Open,
                    None => Part::Broken,
                    Some(begin) => {
                        let is_blank = matches!(self.kept.get(begin..), Some(b"\r\n" | b"\n"));
                        match self.part {
                            Part::Head if is_blank && begin > 0 => {
                                return Piece::Head(Cow::Owned(std::mem::take(&mut self.kept)));
                            }
                            Part::Head if !is_blank => continue,
                            Part::Trailers if is_blank => return self.end(),
                            part => self.end_line(part, is_blank),
                        }
                    }
                },
            };
            self.part = next;
        }
    }

    /// What is behind a line of a chunked body, or an empty line before a head (RFC 9112 section 2.2).
    fn end_line(&mut self, part: Part, is_blank: bool) -> Part {
        let line = std::mem::take(&mut self.kept);
        match part {
            Part::Head | Part::Trailers => part,
            Part::ChunkEnd if is_blank => Part::ChunkSize,
            Part::ChunkSize if !is_blank => match httparse::parse_chunk_size(&line) {
                Ok(httparse::Status::Complete((_, 0))) => Part::Trailers,
                Ok(httparse::Status::Complete((_, size))) => Part::Chunk(size),
                _ => Part::Broken,
            },
            _ => Part::Broken,
        }
    }

    fn end<'a>(&mut self) -> Piece<'a> {
        *self = Self::default();
        Piece::End
    }

    /// Keeps the rest of a line; gives where the line begins in what is kept once it is whole.
    fn take_line(&mut self, bytes: &mut &[u8]) -> Option<usize> {
        let end = bytes.iter().position(|&octet| octet == b'\n');
        let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        let room = limits::HTTP1_HEAD.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(line.get(..room).unwrap_or(line));
        *bytes = rest;
        end.filter(|_| self.kept.len() < limits::HTTP1_HEAD)?;
        let before = self.kept.get(..self.kept.len() - 1)?;
        Some(before.iter().rposition(|&octet| octet == b'\n').map_or(0, |newline| newline + 1))
    }
}

/// Takes a head that lies whole in `bytes`, which begin with no empty line.
fn take_head<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let mut begin = 0;
    let within = bytes.get(..limits::HTTP1_HEAD - 1).unwrap_or(bytes);
    for line in within.split_inclusive(|&octet| octet == b'\n') {
        let is_blank = matches!(line, b"\r\n" | b"\n");
        if is_blank && begin == 0 {
            return None;
        }
        begin += line.len();
        if is_blank {
            let (head, rest) = bytes.split_at(begin);
            *bytes = rest;
            return Some(head);
        }
    }
    None
}

/// Takes octets of a body of which `left` are to come, and tells how many are then.
fn take_body<'a>(bytes: &mut &'a [u8], left: u64, set: impl FnOnce(u64)) -> Piece<'a> {
    let (body, rest) = bytes.split_at(usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()));
    *bytes = rest;
    set(left - body.len() as u64);
    if body.is_empty() { Piece::Open } else { Piece::Body(body) }
}

#[cfg(test)]
mod tests {
    use super::super::head;
    use super::*;

    /// Heads by their length, bodies, whether the last one ended, whether it broke.
    fn read(pieces: &[&[u8]]) -> (Vec<usize>, Vec<u8>, usize, bool) {
        let (mut reader, mut heads, mut bodies, mut ends) = (Reader::default(), Vec::new(), Vec::new(), 0);
        for piece in pieces {
            let mut rest = *piece;
            loop {
                match reader.next(&mut rest) {
                    Piece::Open => break,
                    Piece::Head(octets) => {
                        heads.push(octets.len());
                        reader.begin_body(head::parse_response(&octets, &mut head::room()).unwrap().body().unwrap());
                    }
                    Piece::Body(octets) => bodies.extend_from_slice(octets),
                    Piece::End => ends += 1,
                    Piece::Broken => return (heads, bodies, ends, true),
                }
            }
        }
        (heads, bodies, ends, false)
    }

    const MESSAGES: &[u8] = b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        4;x=y\r\ndefg\r\n1\r\nh\r\n0\r\nTrailer: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\n\nrest";

    #[test]
    fn messages_are_the_same_however_they_are_cut() {
        let whole = read(&[MESSAGES]);
        assert_eq!(whole, (vec![38, 47, 38, 17], b"abcdefghrest".to_vec(), 3, false));
        for cut in 0..MESSAGES.len() {
            assert_eq!(read(&[&MESSAGES[..cut], &MESSAGES[cut..]]), whole, "cut at {cut}");
        }
        assert_eq!(read(&MESSAGES.chunks(1).collect::<Vec<_>>()), whole);
    }

    #[test]
    fn what_is_no_chunk_breaks() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for body in ["x\r\n", "2\r\nabc\r\n", "fffffffffffffffff\r\n", "1\r\nx\r\n\r\n"] {
            assert!(read(&[format!("{head}{body}").as_bytes()]).3, "{body}");
        }
    }

    #[test]
    fn octets_of_a_body_may_be_missing() {
        for (body, gone, rest) in [
            (Body::Length(9), 8, &b"c"[..]),
            (Body::Length(9), 9, b""),
            (Body::Chunked, 4, b"\r\n0\r\n\r\n"),
            (Body::UntilClose, 99, b"x"),
        ] {
            let mut reader = Reader::default();
            reader.begin_body(body);
            if body == Body::Chunked {
                assert_eq!(reader.next(&mut &b"4\r\n"[..]), Piece::Open);
                assert!(!reader.skip(5));
            }
            assert!(reader.skip(gone), "{body:?}");
            let mut rest = rest;
            while let Piece::Body(_) = reader.next(&mut rest) {}
            assert_eq!(reader.is_between(), body != Body::UntilClose, "{body:?}");
        }
        assert!(!Reader::default().skip(1), "in a head");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut reader = Reader::default();
        let long = vec![b'x'; 3 * limits::HTTP1_HEAD];
        for piece in long.chunks(1000) {
            let mut rest = piece;
            reader.next(&mut rest);
        }
        assert!(reader.kept.capacity() <= 2 * limits::HTTP1_HEAD);
        assert_eq!(reader.next(&mut &b"\r\n\r\n"[..]), Piece::Broken);
    }
}
