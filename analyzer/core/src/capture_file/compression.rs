//! Decompression as a stream, recognised by the first bytes, never by the file's name.
//!
//! Decompressed bytes are handed on as soon as the format allows: gzip and lz4 within a block, Zstandard (ruzstd) when a frame's
//! window is full or the frame ends. Memory is bounded by the window, and time by a limit of how much longer the bytes
//! may be than the file.

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder as ZstdDecoder};
use std::io::{self, BufRead, BufReader, Read};

use crate::limits::{CAPTURE_EXPANSION, CAPTURE_EXPANSION_FREE, CAPTURE_READ_BUFFER, CAPTURE_ZSTD_WINDOW};

use super::input::ByteStream;

/// RFC 8878 section 3.1.1
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// lz4_Frame_format.md, "Magic Number"
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952, any number of members.
    Gzip,
    /// RFC 8878, any number of frames, skippable ones too.
    Zstd,
    /// The LZ4 frame format, any number of frames, skippable ones too.
    Lz4,
}

impl Compression {
    /// The compression that a file's first bytes tell.
    pub fn recognise(first_bytes: &[u8]) -> Option<Compression> {
        let magic: [u8; 4] = *first_bytes.first_chunk()?;
        match magic {
            [0x1f, 0x8b, 0x08, _] => Some(Compression::Gzip),
            LZ4_MAGIC => Some(Compression::Lz4),
            // pzstd writes a skippable frame first; no lz4 tool does.
            _ if magic == ZSTD_MAGIC || is_skippable(magic) => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The usual name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
        }
    }

    /// The decompressed bytes of `stream`.
    pub(super) fn decompress(self, stream: ByteStream) -> Decompressor {
        let source = Compressed::new(stream);
        let decoder = match self {
            Compression::Gzip => Decoder::Gzip(MultiGzDecoder::new(source)),
            Compression::Zstd => Decoder::Zstd(Box::new(ZstdFrames::new(source))),
            Compression::Lz4 => Decoder::Lz4(Lz4Frames::new(source)),
        };
        Decompressor { compression: self, decoder, given: 0 }
    }
}

/// 0x184D2A50 to 0x184D2A5F, the same in both formats.
fn is_skippable(magic: [u8; 4]) -> bool {
    matches!(magic, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}

/// A stream of decompressed bytes. After an error it must not be read again.
pub(super) struct Decompressor {
    compression: Compression,
    decoder: Decoder,
    /// Decompressed bytes so far.
    given: u64,
}

enum Decoder {
    Gzip(MultiGzDecoder<Compressed>),
    Zstd(Box<ZstdFrames>),
    Lz4(Lz4Frames),
}

impl Read for Decompressor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (result, source) = match &mut self.decoder {
            Decoder::Gzip(decoder) => (decoder.read(buffer), decoder.get_ref()),
            Decoder::Zstd(frames) => (frames.read(buffer), &frames.source),
            Decoder::Lz4(frames) => (frames.read(buffer), &frames.decoder.get_ref().source),
        };
        let (name, ended) = (self.compression.name(), source.ended);
        self.given = self.given.saturating_add(result.as_ref().map_or(0, |&length| length as u64));
        if self.given > CAPTURE_EXPANSION_FREE.saturating_add(source.taken.saturating_mul(CAPTURE_EXPANSION)) {
            let text = format!("the {name} data expands to more than {CAPTURE_EXPANSION} times its length");
            return Err(io::Error::other(text));
        }
        result.map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => error,
            _ if ended => io::Error::other(format!("the {name} data is cut short")),
            _ => io::Error::other(format!("the {name} data is corrupt: {error}")),
        })
    }
}

/// The compressed bytes, remembering whether their end was met: that tells a cut file from a corrupt one.
struct Compressed {
    reader: BufReader<ByteStream>,
    ended: bool,
    /// Bytes that were taken from it.
    taken: u64,
}

impl Compressed {
    fn new(stream: ByteStream) -> Compressed {
        Compressed { reader: BufReader::with_capacity(CAPTURE_READ_BUFFER, stream), ended: false, taken: 0 }
    }

    /// The next frame's magic number; skippable frames are skipped. None at the end of the file.
    fn next_frame(&mut self) -> io::Result<Option<[u8; 4]>> {
        loop {
            if self.fill_buf()?.is_empty() {
                return Ok(None);
            }
            let mut word = [0; 4];
            self.read_exact(&mut word)?;
            if !is_skippable(word) {
                return Ok(Some(word));
            }
            self.read_exact(&mut word)?;
            let length = u64::from(u32::from_le_bytes(word));
            if io::copy(&mut self.by_ref().take(length), &mut io::sink())? < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Read for Compressed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.ended |= length == 0 && !buffer.is_empty();
        self.taken += length as u64;
        Ok(length)
    }
}

impl BufRead for Compressed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let bytes = self.reader.fill_buf()?;
        self.ended |= bytes.is_empty();
        Ok(bytes)
    }

    fn consume(&mut self, length: usize) {
        self.reader.consume(length);
        self.taken += length as u64;
    }
}

fn not_a_frame(magic: [u8; 4]) -> io::Error {
    io::Error::other(format!("{magic:02x?} begins no frame"))
}

/// ruzstd decodes one frame; this decodes them all and checks their checksums.
struct ZstdFrames {
    source: Compressed,
    decoder: ZstdDecoder,
    in_frame: bool,
}

impl ZstdFrames {
    fn new(source: Compressed) -> ZstdFrames {
        let mut decoder = ZstdDecoder::new();
        decoder.set_max_window_size(CAPTURE_ZSTD_WINDOW);
        ZstdFrames { source, decoder, in_frame: false }
    }

    /// False at the end of the file.
    fn begin_frame(&mut self) -> io::Result<bool> {
        let Some(magic) = self.source.next_frame()? else {
            return Ok(false);
        };
        if magic != ZSTD_MAGIC {
            return Err(not_a_frame(magic));
        }
        let header = magic.as_slice().chain(&mut self.source);
        self.decoder.reset(header).map_err(io::Error::other)?;
        self.in_frame = true;
        Ok(true)
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.in_frame = false;
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::other("checksum of a frame differs"));
        }
        Ok(())
    }
}

impl Read for ZstdFrames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.begin_frame()? {
                return Ok(0);
            }
            let length = self.decoder.read(buffer)?;
            if length > 0 {
                return Ok(length);
            }
            if self.decoder.is_finished() {
                self.end_frame()?;
                continue;
            }
            let one_block = BlockDecodingStrategy::UptoBlocks(1);
            let decoded = self.decoder.decode_blocks(&mut self.source, one_block);
            decoded.map_err(io::Error::other)?;
        }
    }
}

/// lz4_flex stops at a frame's end and at a cut alike, and fails at a skippable frame; this goes on, and tells them apart.
struct Lz4Frames {
    decoder: lz4_flex::frame::FrameDecoder<AfterMagic>,
    in_frame: bool,
}

/// Hands out a frame's magic number, already taken from the source, before the source.
struct AfterMagic {
    magic: io::Cursor<[u8; 4]>,
    source: Compressed,
}

impl Read for AfterMagic {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.magic.read(buffer)? {
            0 => self.source.read(buffer),
            length => Ok(length),
        }
    }
}

impl Lz4Frames {
    fn new(source: Compressed) -> Lz4Frames {
        let mut magic = io::Cursor::new(LZ4_MAGIC);
        magic.set_position(LZ4_MAGIC.len() as u64);
        Lz4Frames { decoder: lz4_flex::frame::FrameDecoder::new(AfterMagic { magic, source }), in_frame: false }
    }

    /// False at the end of the file.
    fn begin_frame(&mut self) -> io::Result<bool> {
        let input = self.decoder.get_mut();
        match input.source.next_frame()? {
            None => return Ok(false),
            Some(LZ4_MAGIC) => input.magic.set_position(0),
            Some(magic) => return Err(not_a_frame(magic)),
        }
        self.in_frame = true;
        Ok(true)
    }
}

impl Read for Lz4Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.begin_frame()? {
                return Ok(0);
            }
            let length = self.decoder.read(buffer)?;
            if length > 0 {
                return Ok(length);
            }
            if self.decoder.get_ref().source.ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.in_frame = false;
        }
    }
}
