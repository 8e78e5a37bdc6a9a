//! What people read.

use crate::packet::{Dissector, NotTcp, Outcome, TcpFlags, is_supported};

use super::hex;

fn message(link_type: u32, packet: &str, original_len: u32) -> String {
    match Dissector::new().dissect(link_type, &hex(packet), original_len, 0) {
        Outcome::Malformed(malformed) => malformed.to_string(),
        outcome => panic!("not malformed: {outcome:?}"),
    }
}

#[test]
fn messages_say_where_what_and_what_to_do() {
    assert_eq!(
        message(101, "45000028", 40),
        "IPv4 header at byte 0: the capture cut the packet here; record with a larger snapshot length (tcpdump -s 0)"
    );
    assert_eq!(message(101, "45000028", 4), "IPv4 header at byte 0: the packet ends inside it");
    assert_eq!(message(101, "30", 1), "IP header at byte 0: unexpected version 3");
    assert_eq!(
        message(101, "4300001400000000ff060000 0a000001 0a000002", 20),
        "IPv4 header at byte 0: impossible header length of 12 bytes"
    );
}

#[test]
fn protocols_are_named() {
    let names = [
        (NotTcp::Arp, "ARP"),
        (NotTcp::Udp, "UDP"),
        (NotTcp::OtherIp(132), "IP protocol 132"),
        (NotTcp::OtherEtherType(0x88cc), "EtherType 0x88cc"),
        (NotTcp::OtherPpp(0xc021), "PPP protocol 0xc021"),
        (NotTcp::OtherFamily(7), "address family 7"),
    ];
    for (protocol, name) in names {
        assert_eq!(protocol.to_string(), name);
    }
}

#[test]
fn flags_are_named_and_tested() {
    let flags = TcpFlags(0x012);
    assert_eq!(flags.to_string(), "SYN,ACK");
    assert_eq!(TcpFlags(0).to_string(), "none");
    assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags(0x003)));
    assert!(flags.intersects(TcpFlags(0x003)) && !flags.intersects(TcpFlags::FIN));
}

#[test]
fn supported_links_are_those_that_are_dissected() {
    for link_type in 0..1024 {
        let mut dissector = Dissector::new();
        let outcome = dissector.dissect(link_type, &[], 0, 0);
        let unsupported = outcome == Outcome::UnsupportedLink(link_type);
        assert_eq!(is_supported(link_type), !unsupported, "link type {link_type}");
    }
}
