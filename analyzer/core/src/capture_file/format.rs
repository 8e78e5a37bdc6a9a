//! Which format a file's first bytes are: those read here, and those worth refusing by name.

use super::error::OpenErrorKind;
use super::header_errors::{MAGIC_LENGTH, WITH_EDITCAP, not_a_capture};
use super::input::Input;
use super::pcap::PcapLayout;

const NO_CONVERTER: &str = "no common tool converts it: record as pcap or pcapng with the tool that wrote it";
const DECOMPRESS: &str = "decompress it and give the result, or pipe the result to standard input";

/// Formats refused by name: first bytes, name, remedy. The magic numbers are those of libpcap's sf-pcap.c and of Wireshark's
/// wiretap/libpcap.h, snoop.c, netmon.c, btsnoop.c, iptrace.c, ngsniffer.c, peektagged.c and peekclassic.c.
const REFUSED: [(&[u8], &str, &str); 22] = [
    (&[0xa1, 0xb2, 0xcd, 0x34], "Kuznetzov's modified pcap", WITH_EDITCAP),
    (&[0x34, 0xcd, 0xb2, 0xa1], "Kuznetzov's modified pcap", WITH_EDITCAP),
    (&[0x1c, 0x00, 0x01, 0xac], "IXIA's hardware pcap (lcap)", WITH_EDITCAP),
    (&[0xac, 0x01, 0x00, 0x1c], "IXIA's hardware pcap (lcap)", WITH_EDITCAP),
    (&[0x1c, 0x00, 0x01, 0xab], "IXIA's software pcap (lcap)", WITH_EDITCAP),
    (&[0xab, 0x01, 0x00, 0x1c], "IXIA's software pcap (lcap)", WITH_EDITCAP),
    (&[0xa1, 0x2b, 0x3c, 0x4d], "Navtel's modified pcap", NO_CONVERTER),
    (&[0x4d, 0x3c, 0x2b, 0xa1], "Navtel's modified pcap", NO_CONVERTER),
    (&[0xa1, 0xb2, 0x34, 0xcd], "Mesquita's modified pcap", NO_CONVERTER),
    (&[0xcd, 0x34, 0xb2, 0xa1], "Mesquita's modified pcap", NO_CONVERTER),
    (b"snoop\0\0\0", "a snoop capture", WITH_EDITCAP),
    (b"btsnoop\0", "a Bluetooth snoop capture", WITH_EDITCAP),
    (b"GMBU", "a Microsoft Network Monitor 2 capture", WITH_EDITCAP),
    (b"RTSS", "a Microsoft Network Monitor 1 capture", WITH_EDITCAP),
    (b"iptrace ", "an AIX iptrace capture", WITH_EDITCAP),
    (b"TRSNIFF data", "a Sniffer capture", WITH_EDITCAP),
    (b"\x7fver", "a Peek capture", WITH_EDITCAP),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "compressed with xz", DECOMPRESS),
    (b"BZh", "compressed with bzip2", DECOMPRESS),
    (&[0x02, 0x21, 0x4c, 0x18], "compressed with lz4's legacy format", DECOMPRESS),
    (b"PK\x03\x04", "a zip archive", DECOMPRESS),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", DECOMPRESS),
];

/// What a file's first bytes are.
#[derive(Debug)]
pub(super) enum Recognised {
    Pcap(PcapLayout),
    Pcapng,
}

/// Reads as much of the beginning as needed, taking nothing.
pub(super) fn recognise(input: &mut Input) -> Result<Recognised, OpenErrorKind> {
    // No more than this is asked of a pipe: each format has at least as many bytes before its first packet.
    input.ensure(MAGIC_LENGTH);
    let bytes = input.waiting();
    if let Some(layout) = PcapLayout::from_magic(bytes) {
        return Ok(Recognised::Pcap(layout));
    }
    if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) {
        return Ok(Recognised::Pcapng);
    }
    Err(refusal(input))
}

fn refusal(input: &Input) -> OpenErrorKind {
    let bytes = input.waiting();
    if let Some((_, format, remedy)) = REFUSED.iter().find(|(magic, ..)| bytes.starts_with(magic)) {
        return OpenErrorKind::Unsupported { format: (*format).to_owned(), remedy };
    }
    match input.failure() {
        Some(failure) => OpenErrorKind::Unreadable(failure.to_owned()),
        None if bytes.is_empty() => OpenErrorKind::Empty,
        None => not_a_capture(bytes),
    }
}
