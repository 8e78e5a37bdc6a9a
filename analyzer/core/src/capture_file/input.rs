//! A byte stream seen through one buffer, and the sources that such streams come from.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::CAPTURE_READ_BUFFER;

use super::error::{OpenError, OpenErrorKind};

/// A stream of bytes that may be handed to another thread.
pub type ByteStream = Box<dyn Read + Send>;

/// Where a capture comes from.
pub enum Source {
    /// A file, a named pipe or any other path that can be read.
    Path(PathBuf),
    /// Standard input.
    Stdin,
    /// Any other stream, with a name for messages.
    Reader(String, ByteStream),
}

/// An opened source, before its first byte is read.
pub(super) struct Opened {
    pub name: String,
    pub stream: ByteStream,
    /// Its length in bytes, if it is a regular file: only such a file can be opened again and has a length.
    pub length: Option<u64>,
}

impl Opened {
    /// Opens a path for reading.
    pub fn path(path: &Path) -> Result<Opened, OpenError> {
        let name = path.to_string_lossy().into_owned();
        match File::open(path).and_then(|file| Ok((file.metadata()?, file))) {
            Ok((metadata, file)) => {
                Ok(Opened { name, stream: Box::new(file), length: metadata.is_file().then_some(metadata.len()) })
            }
            Err(error) => Err(OpenError { file: name, kind: OpenErrorKind::Unreadable(error.to_string()) }),
        }
    }

    /// Names a stream that is already open.
    pub fn stream(name: String, stream: ByteStream) -> Opened {
        Opened { name, stream, length: None }
    }
}

/// Adds what is read from `inner` to `count`.
pub(super) fn counted(inner: ByteStream, count: &Arc<AtomicU64>) -> ByteStream {
    Box::new(Counted { inner, count: Arc::clone(count) })
}

struct Counted {
    inner: ByteStream,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.count.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

/// One buffer over a stream. Reads return what is there, so a pipe's bytes are seen as soon as they are in the pipe.
pub(super) struct Input {
    stream: ByteStream,
    buffer: Vec<u8>,
    /// The bytes read and not yet taken are `buffer[start..end]`.
    start: usize,
    end: usize,
    /// Stream offset of `buffer[start]`.
    offset: u64,
    ended: bool,
    failure: Option<String>,
}

impl Input {
    pub fn new(stream: ByteStream) -> Input {
        Input { stream, buffer: vec![0; CAPTURE_READ_BUFFER], start: 0, end: 0, offset: 0, ended: false, failure: None }
    }

    /// Bytes from the beginning of the stream to the first one not yet taken.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The bytes read and not yet taken.
    #[inline]
    pub fn waiting(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Why the stream ended, if not because it was over.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Reads until `length` bytes wait; false if the stream ends first. Invalidates ranges given by `take`.
    #[inline]
    pub fn ensure(&mut self, length: usize) -> bool {
        self.end - self.start >= length || self.fill(length)
    }

    /// Takes up to `length` waiting bytes; the range stays readable by `slice` until the next `ensure`.
    #[inline]
    pub fn take(&mut self, length: usize) -> Range<usize> {
        let begin = self.start;
        self.start = self.end.min(begin.saturating_add(length));
        self.offset += (self.start - begin) as u64;
        begin..self.start
    }

    /// The bytes of a range given by `take` since the last `ensure`.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    #[cold]
    fn fill(&mut self, length: usize) -> bool {
        self.move_to_front();
        while self.end < length && !self.ended {
            if self.end == self.buffer.len() {
                // Doubling: memory follows the bytes that are there, not the length that is claimed.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let free = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.stream.read(free) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end = (self.end + count).min(self.buffer.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    self.failure = Some(error.to_string());
                }
            }
        }
        self.end >= length
    }

    /// Cheap: only a part of one record is ever left when more is needed.
    fn move_to_front(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }
}
