//! A temporary file without a name, for what memory should not hold. Nothing of it is left behind, however a run ends.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A file that several threads add to.
#[derive(Debug)]
pub struct Spill {
    inner: Mutex<Inner>,
    /// Values of one kind that are kept in memory before they go to the file.
    pub most: usize,
}

#[derive(Debug)]
struct Inner {
    file: File,
    end: u64,
    failure: Option<io::Error>,
}

impl Spill {
    /// A file in the folder for temporary ones (`TMPDIR`). The error is the operating system's.
    pub fn new(most: usize) -> io::Result<Arc<Self>> {
        let inner = Mutex::new(Inner { file: tempfile::tempfile()?, end: 0, failure: None });
        Ok(Arc::new(Self { inner, most: most.max(1) }))
    }

    /// Adds bytes and returns where they are. After a failure, which `failure` returns, they are lost.
    pub fn add(&self, bytes: &[u8]) -> u64 {
        let mut inner = self.lock();
        let place = inner.end;
        inner.end += bytes.len() as u64;
        if inner.failure.is_none() {
            let written = inner.file.seek(SeekFrom::Start(place)).and_then(|_| inner.file.write_all(bytes));
            inner.failure = written.err();
        }
        place
    }

    /// Fills `bytes` from a place on; after a failure they are zeros.
    pub fn read(&self, place: u64, bytes: &mut [u8]) {
        let mut inner = self.lock();
        let read = match inner.failure {
            Some(_) => return bytes.fill(0),
            None => inner.file.seek(SeekFrom::Start(place)).and_then(|_| inner.file.read_exact(bytes)),
        };
        if read.is_err() {
            bytes.fill(0);
        }
        inner.failure = read.err();
    }

    /// What went wrong, if anything did. It is returned once.
    pub fn failure(&self) -> Option<io::Error> {
        self.lock().failure.take()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
