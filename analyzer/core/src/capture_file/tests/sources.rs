use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::mpsc;

use crate::capture_file::OpenErrorKind;

use super::*;

fn refused(bytes: &[u8]) -> OpenErrorKind {
    open(bytes).err().expect("refused").kind
}

#[test]
fn no_capture() {
    assert_eq!(refused(b""), OpenErrorKind::Empty);
    let first_bytes = b"\x1b[31mHello, wor".to_vec();
    let expected = OpenErrorKind::NotACapture { first_bytes };
    assert_eq!(refused(b"\x1b[31mHello, wor"), expected);
    let message = open(b"\x1b[31mHi").err().expect("refused").to_string();
    assert!(message.starts_with("test: is not a capture: it begins with \"\\x1b[31mHi\" (hex 1b 5b 33 31 6d 48 69)"));
    let error = CaptureReader::open(Vec::new()).err().expect("refused");
    assert_eq!(error.kind, OpenErrorKind::NoSource);
    let bytes = 23;
    let format = "pcap";
    assert_eq!(refused(&plain_pcap(1)[..bytes]), OpenErrorKind::HeaderCut { format, bytes });
}

#[test]
fn formats_refused_by_name() {
    let expected: [(&[u8], &str); 8] = [
        (&[0x34, 0xcd, 0xb2, 0xa1], "Kuznetzov's modified pcap"),
        (&[0xac, 0x01, 0x00, 0x1c], "IXIA's hardware pcap (lcap)"),
        (&[0x4d, 0x3c, 0x2b, 0xa1], "Navtel's modified pcap"),
        (b"snoop\0\0\0", "a snoop capture"),
        (b"GMBU", "a Microsoft Network Monitor 2 capture"),
        (b"\xfd7zXZ\0", "compressed with xz"),
        (&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 3, 0], "pcap version 2.3"),
        (&[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 3, 0], "pcapng version 3.0"),
    ];
    for (magic, name) in expected {
        let mut bytes = magic.to_vec();
        bytes.resize(40, 0);
        match refused(&bytes) {
            OpenErrorKind::Unsupported { format, .. } => assert_eq!(format, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn missing_file_is_named() {
    let missing = PathBuf::from("no-such-folder/no-such.pcap");
    let sources = vec![source(&plain_pcap(1)), Source::Path(missing)];
    let error = CaptureReader::open(sources).err().expect("refused");
    assert_eq!(error.file, "no-such-folder/no-such.pcap");
    assert!(matches!(error.kind, OpenErrorKind::Unreadable(_)));
}

/// Gives one byte for each read, and an interruption before each.
struct Slow {
    bytes: io::Cursor<Vec<u8>>,
    interrupt: bool,
}

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupt = !self.interrupt;
        if self.interrupt {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = buffer.len().min(1);
        self.bytes.read(&mut buffer[..length])
    }
}

#[test]
fn one_byte_at_a_time() {
    for bytes in [plain_pcap(50), plain_pcapng(50)] {
        let slow = Slow { bytes: io::Cursor::new(bytes.clone()), interrupt: false };
        let source = Source::Reader("slow".to_owned(), Box::new(slow));
        let (packets, info) = drain(CaptureReader::open(vec![source]).expect("a capture"));
        assert_eq!(packets, read_clean(&bytes));
        assert_eq!(info.damage, []);
    }
}

/// A pipe: reads wait for a message; the bytes of one are one read.
struct Pipe(mpsc::Receiver<Vec<u8>>);

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Ok(bytes) = self.0.try_recv() else {
            // Asking an empty pipe would wait while a packet is at hand.
            return Err(io::Error::other("asked too early"));
        };
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

#[test]
fn packets_come_as_soon_as_they_are_in_the_pipe() {
    let bytes = plain_pcap(4);
    let (pipe, receiver) = mpsc::channel();
    let source = Source::Reader("pipe".to_owned(), Box::new(Pipe(receiver)));
    // The compression is told by four bytes, then the header is read.
    pipe.send(bytes[..4].to_vec()).expect("open");
    pipe.send(bytes[4..24].to_vec()).expect("open");
    let mut reader = CaptureReader::open(vec![source]).expect("a capture");
    let mut begin = 24;
    for i in 0..4 {
        let end = begin + 16 + packet_bytes(i).len();
        pipe.send(bytes[begin..end].to_vec()).expect("open");
        let packet = reader.next_packet().expect("the packet just sent");
        assert_eq!(packet.number, i + 1);
        begin = end;
    }
    assert_eq!(reader.info().damage, []);
}

/// A folder of files, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("capture-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn permutations(items: Vec<usize>) -> Vec<Vec<usize>> {
    if items.len() < 2 {
        return vec![items];
    }
    let with_first = |i: usize| {
        let mut rest = items.clone();
        let first = rest.remove(i);
        permutations(rest).into_iter().map(move |p| [vec![first], p].concat())
    };
    (0..items.len()).flat_map(with_first).collect()
}

#[test]
fn rotated_files_in_any_order() {
    let folder = Folder::new("rotated");
    let files = [
        folder.write("0", &plain_pcap_from(1000, 3)),
        folder.write("1", &plain_pcap_from(2000, 2)),
        folder.write("2", &plain_pcap(4)),
        folder.write("3", &plain_pcapng(2)),
        folder.write("none", &plain_pcap(0)),
    ];
    let length: u64 = files.iter().map(|f| f.metadata().expect("a file").len()).sum();
    for order in permutations(vec![0, 1, 2, 3, 4]) {
        // Equal times stay in the order given: only one of the last two goes first.
        if order.iter().position(|&i| i == 3) < order.iter().position(|&i| i == 2) {
            continue;
        }
        let sources = order.iter().map(|&i| Source::Path(files[i].clone()));
        let mut reader = CaptureReader::open(sources.collect()).expect("captures");
        assert_eq!(reader.bytes_total(), Some(length));
        let mut seen = Vec::new();
        while let Some(packet) = reader.next_packet() {
            seen.push((packet.number, packet.interface, packet.time_ns / 1_000_000_000));
        }
        assert_eq!(reader.bytes_read(), length);
        assert_eq!(reader.info().damage, []);
        let times = [1000, 1001, 1002, 2000, 2001];
        let later = [0, 1, 2, 3, 0, 1].map(|i| 1_700_000_000 + i);
        let interfaces = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3];
        let times = times.into_iter().chain(later);
        let expected = (1..).zip(interfaces).zip(times).map(|((n, i), t)| (n, i, t));
        assert_eq!(seen, expected.collect::<Vec<_>>(), "{order:?}");
    }
}

#[test]
fn one_file_of_several_is_damaged() {
    let folder = Folder::new("damaged");
    let whole = plain_pcap_from(1000, 3);
    let sources = vec![Source::Path(folder.write("0", &whole[..whole.len() - 1])), source(&plain_pcap_from(2000, 3))];
    let reader = CaptureReader::open(sources).expect("captures");
    assert_eq!(reader.bytes_total(), None);
    let (packets, info) = drain(reader);
    assert_eq!(packets.len(), 5);
    assert_eq!(info.damage.len(), 1);
    assert_eq!(info.damage[0].packet, 2);
    assert!(info.files[info.damage[0].file].name.ends_with('0'));
}

#[test]
fn file_that_vanishes_is_noted() {
    let folder = Folder::new("vanished");
    let first = folder.write("0", &plain_pcap_from(1000, 1));
    let second = folder.write("1", &plain_pcap_from(2000, 1));
    let sources = vec![Source::Path(first), Source::Path(second.clone())];
    let reader = CaptureReader::open(sources).expect("captures");
    std::fs::remove_file(second).expect("it was there");
    let (packets, info) = drain(reader);
    assert_eq!(packets.len(), 1);
    assert!(info.damage[0].reason.contains("left out"), "{:?}", info.damage);
}
