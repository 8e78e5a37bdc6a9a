//! What is said of packets that cannot be read, and of flags.

use crate::packet::{Dissector, Layer, Malformed, Outcome, Problem, TcpFlags};

use super::hex;

#[test]
fn malformed_packets_tell_where_and_what() {
    let malformed = |packet: &str, original_len: u32| match Dissector::new().dissect(101, &hex(packet), original_len, 0)
    {
        Outcome::Malformed(Malformed { layer, problem, offset }) => (layer, problem, offset),
        outcome => panic!("not malformed: {outcome:?}"),
    };
    assert_eq!(malformed("45000028", 40), (Layer::Ipv4, Problem::Cut, 0));
    assert_eq!(malformed("45000028", 4), (Layer::Ipv4, Problem::Short, 0));
    assert_eq!(malformed("30", 1), (Layer::Ip, Problem::Version(3), 0));
    let short = malformed("4300001400000000ff060000 0a000001 0a000002", 20);
    assert_eq!(short, (Layer::Ipv4, Problem::HeaderLength(12), 0));
}

#[test]
fn flags_are_tested() {
    let flags = TcpFlags(0x012);
    assert!(flags.contains(TcpFlags::SYN) && !flags.contains(TcpFlags(0x003)));
    assert!(flags.intersects(TcpFlags(0x003)) && !flags.intersects(TcpFlags::FIN));
}
