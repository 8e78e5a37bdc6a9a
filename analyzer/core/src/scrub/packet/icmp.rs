//! ICMP: type and code; of an error about a TCP segment also what the next hop carries, and the quoted header.

use crate::packet::icmp::{PACKET_TOO_BIG, UNREACHABLE, UNREACHABLE_V6};
use crate::packet::protocol;

use super::super::checksum::Sum;
use super::Walk;

/// Ports and sequence number.
const QUOTED_TCP: usize = 8;

impl Walk<'_> {
    pub(super) fn icmp(&mut self, kind: u8, at: usize, end: usize) -> Option<()> {
        self.keep(at, 2)?;
        // what is no quoted header before the packet's end is zeroed
        let _ = match (kind, self.byte(at)?) {
            (protocol::ICMP, UNREACHABLE) => self.keep(at + 4, 4).and_then(|()| self.quoted_v4(at + 8, end)),
            (protocol::ICMPV6, UNREACHABLE_V6 | PACKET_TOO_BIG) => {
                self.keep(at + 4, 4).and_then(|()| self.quoted_v6(at + 8, end))
            }
            _ => None,
        };
        Some(())
    }

    fn quoted_v4(&mut self, at: usize, end: usize) -> Option<()> {
        let header = usize::from(self.byte(at)? & 15) * 4;
        if self.byte(at)? >> 4 != 4 || header < 20 || at + header + QUOTED_TCP > end {
            return None;
        }
        self.header_v4(at, header)?;
        self.checksum(at + 10, at, at + header, Sum::default(), false)?;
        let is_tcp = self.byte(at + 9)? == protocol::TCP && self.be16(at + 6)? & 0x3fff == 0;
        if is_tcp { self.keep(at + header, QUOTED_TCP) } else { None }
    }

    fn quoted_v6(&mut self, at: usize, end: usize) -> Option<()> {
        if self.byte(at)? >> 4 != 6 || at + 40 + QUOTED_TCP > end {
            return None;
        }
        self.header_v6(at)?;
        if self.byte(at + 6)? == protocol::TCP { self.keep(at + 40, QUOTED_TCP) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::replace::Key;
    use super::super::Rewriter;
    use crate::packet::{Dissector, Outcome};

    const RAW: u32 = 101;

    #[test]
    fn of_a_quoted_segment_only_ports_and_sequence_number_stay() {
        let quoted = [69, 0, 5, 220, 0, 0, 64, 0, 64, 6, 0, 0, 10, 1, 1, 1, 10, 1, 1, 2, 0, 7, 0, 80, 1, 2, 3, 4];
        let secret = b"secret";
        let length = (20 + 8 + quoted.len() + secret.len()) as u8;
        let ip = [69, 0, 0, length, 0, 0, 0, 0, 64, 1, 0, 0, 10, 1, 2, 1, 10, 1, 1, 1];
        let packet = [&ip[..], &[3, 4, 0, 0, 0, 0, 5, 120], &quoted, secret].concat();
        let mut rewriter = Rewriter::default();
        let (out, _) = rewriter.rewrite(RAW, &packet, packet.len() as u32, None, &Key::new(b"key"));
        assert_eq!(out[packet.len() - secret.len()..], [0; 6]);
        let mut dissector = Dissector::new();
        let Outcome::Icmp(error) = dissector.dissect(RAW, out, out.len() as u32, 0) else { panic!("no error") };
        assert_eq!((error.kind, error.code, error.mtu), (3, 4, 1_400));
        assert_eq!((error.source.1, error.destination.1), (7, 80));
        assert_ne!(error.source.0.to_string(), "10.1.1.1");
    }

    #[test]
    fn what_is_no_quoted_header_is_zeroed() {
        let secret = b"PASSWORD=hunter2, and what follows it in the body of an error";
        for (kind, version) in [(1, 4), (58, 6)] {
            let error = [&[3 - u8::from(kind == 58) * 2, 1, 0, 0, 0, 0, 0, 0][..], secret].concat();
            let length = if version == 4 { (20 + error.len()) as u8 } else { error.len() as u8 };
            let v4 = [69, 0, 0, length, 0, 0, 0, 0, 64, kind, 0, 0, 10, 1, 2, 1, 10, 1, 1, 1];
            let mut v6 = [0; 40];
            (v6[0], v6[5], v6[6], v6[7]) = (0x60, length, kind, 64);
            let packet = [if version == 4 { &v4[..] } else { &v6[..] }, &error].concat();
            let mut rewriter = Rewriter::default();
            let (out, _) = rewriter.rewrite(RAW, &packet, packet.len() as u32, None, &Key::new(b"key"));
            assert!(out[packet.len() - secret.len()..].iter().all(|&octet| octet == 0), "{version}");
        }
    }
}
