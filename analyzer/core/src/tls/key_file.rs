//! A key log to which programs write while packets are read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// Bytes that are read at once.
const PIECE: u64 = 16 << 20;

/// A key log that grows, and how many bytes of it were read.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
    read: u64,
}

impl KeyFile {
    /// Nothing is read yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, read: 0 }
    }

    /// Whole lines that were written since the last call, some at a time; empty when there are none, or none can be read.
    pub fn read_new(&mut self) -> Vec<u8> {
        self.read_lines().unwrap_or_default()
    }

    fn read_lines(&mut self) -> std::io::Result<Vec<u8>> {
        let mut lines = Vec::new();
        let metadata = std::fs::metadata(&self.path)?;
        if !metadata.is_file() || metadata.len() == self.read {
            return Ok(lines); // a pipe would block
        }
        if metadata.len() < self.read {
            self.read = 0; // it was begun anew
        }
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read))?;
        file.take(PIECE).read_to_end(&mut lines)?;
        let whole = lines.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
        // a piece without an end of line is no key log
        self.read += if lines.len() as u64 == PIECE && whole == 0 { PIECE } else { whole as u64 };
        lines.truncate(whole);
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_are_read_once_and_when_they_are_whole() {
        let folder = std::env::temp_dir().join(format!("grpcdiag-key-file-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("keys.log");
        let mut file = KeyFile::new(path.clone());
        assert_eq!(file.read_new(), b"", "it is not there");
        let mut written = File::create(&path).unwrap();
        for (text, lines) in [("a 1\nb", "a 1\n"), (" 2", ""), ("\nc 3\n", "b 2\nc 3\n"), ("", "")] {
            written.write_all(text.as_bytes()).unwrap();
            assert_eq!(file.read_new(), lines.as_bytes());
        }
        std::fs::write(&path, "d 4\n").unwrap();
        assert_eq!(file.read_new(), b"d 4\n", "it was begun anew");
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(file.read_new(), b"");
    }
}
