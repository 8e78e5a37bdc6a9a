//! Why a source cannot be read as a capture at all. What goes wrong later is [`Damage`](super::Damage), not an error.

use std::fmt;

/// A source that is no readable capture, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenError {
    /// The path as given, "standard input", or the reader's name; empty if there is no source.
    pub file: String,
    /// What is wrong with the source.
    pub kind: OpenErrorKind,
}

/// What is wrong with a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenErrorKind {
    /// No source was given.
    NoSource,
    /// It cannot be opened or read; the operating system's or the decompressor's message.
    Unreadable(String),
    /// It has no bytes, or decompresses to none.
    Empty,
    /// It ends inside the file header, after so many bytes.
    HeaderCut {
        /// The format's name.
        format: &'static str,
        /// Bytes of the file header that are there.
        bytes: usize,
    },
    /// None of the formats known here; its first bytes (after decompression), at most 16.
    NotACapture {
        /// The file's first bytes.
        first_bytes: Vec<u8>,
    },
    /// A known format that is not read here, and how to get one that is.
    Unsupported {
        /// The format's name.
        format: String,
        /// How to get a capture that is read.
        remedy: &'static str,
    },
}

impl OpenErrorKind {
    /// Whether the source is a capture, as far as it goes, that holds no packet.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty | Self::HeaderCut { .. })
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == OpenErrorKind::NoSource {
            return f.write_str("no capture given: name a file, or - for standard input");
        }
        write!(f, "{}: ", self.file.escape_debug())?;
        match &self.kind {
            OpenErrorKind::NoSource => Ok(()),
            OpenErrorKind::Unreadable(why) => write!(f, "cannot be read: {why}"),
            OpenErrorKind::Empty => {
                f.write_str("is empty; was the capture stopped before its first write, or is the filter too narrow?")
            }
            OpenErrorKind::HeaderCut { format, bytes } => {
                write!(f, "ends after {bytes} bytes, inside the {format} file header; copy the file again")
            }
            OpenErrorKind::NotACapture { first_bytes } => write_not_a_capture(f, first_bytes),
            OpenErrorKind::Unsupported { format, remedy } => {
                write!(f, "is {format}, which is not read here; {remedy}")
            }
        }
    }
}

impl std::error::Error for OpenError {}

fn write_not_a_capture(f: &mut fmt::Formatter<'_>, first_bytes: &[u8]) -> fmt::Result {
    write!(f, "is not a capture: it begins with \"{}\" (hex", first_bytes.escape_ascii())?;
    for byte in first_bytes {
        write!(f, " {byte:02x}")?;
    }
    f.write_str("); expected pcap or pcapng, plain or compressed with gzip, zstd or lz4")
}
