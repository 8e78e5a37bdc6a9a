//! Packets with known meaning, whole and damaged. `tests/vectors.py` made them with scapy.

mod fragments;
mod hostile;
mod messages;

use super::{Dissector, NotTcp, Outcome, Segment, TcpFlags};

/// A packet and what must be found in it.
struct Vector {
    name: &'static str,
    link_type: u32,
    original_len: u32,
    bytes: Vec<u8>,
    meaning: &'static str,
}

fn vectors() -> Vec<Vector> {
    let lines = include_str!("tests/vectors.txt").lines();
    lines.map(parse).collect()
}

fn parse(line: &'static str) -> Vector {
    let parts: Vec<&str> = line.split('|').collect();
    let [name, link_type, original_len, bytes, meaning] = parts[..] else {
        panic!("not five parts: {line}");
    };
    Vector {
        name,
        link_type: link_type.parse().unwrap(),
        original_len: original_len.parse().unwrap(),
        bytes: hex(bytes),
        meaning,
    }
}

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The outcome in the words of `vectors.py`.
fn describe(outcome: &Outcome<'_>) -> String {
    match outcome {
        Outcome::Tcp(segment) => describe_segment(segment),
        Outcome::Dns(_) => "other UDP".to_owned(),
        Outcome::Icmp(error) => format!(
            "icmp {}/{} of {} mtu={} about {}:{} > {}:{}",
            error.kind,
            error.code,
            error.reporter,
            error.mtu,
            error.source.0,
            error.source.1,
            error.destination.0,
            error.destination.1
        ),
        Outcome::NotTcp(protocol) => format!("other {}", name(*protocol)),
        Outcome::Fragment => "fragment".to_owned(),
        Outcome::Malformed(malformed) => {
            format!("malformed {:?} {:?} {}", malformed.layer, malformed.problem, malformed.offset)
        }
        Outcome::UnsupportedLink(link_type) => format!("unsupported link {link_type}"),
    }
}

/// "SYN,ACK"; "none" when no known bit is set.
fn flag_names(flags: TcpFlags) -> String {
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "NS"];
    let set: Vec<&str> = (0..).zip(names).filter(|(bit, _)| flags.0 >> bit & 1 == 1).map(|(_, name)| name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(",") }
}

fn name(protocol: NotTcp) -> String {
    match protocol {
        NotTcp::Arp => "ARP".to_owned(),
        NotTcp::Udp => "UDP".to_owned(),
        NotTcp::Icmp => "ICMP".to_owned(),
        NotTcp::OtherIp(protocol) => format!("IP protocol {protocol}"),
        NotTcp::OtherEtherType(number) => format!("EtherType 0x{number:04x}"),
        NotTcp::Llc => "IEEE 802.3 LLC".to_owned(),
        NotTcp::OtherPpp(protocol) => format!("PPP protocol 0x{protocol:04x}"),
        NotTcp::OtherFamily(family) => format!("address family {family}"),
    }
}

fn describe_segment(segment: &Segment<'_>) -> String {
    let options = match (segment.options_malformed, segment.options_cut) {
        (false, false) => "ok",
        (true, false) => "malformed",
        (false, true) => "cut",
        (true, true) => "malformed and cut",
    };
    let blocks = segment.sack.as_slice().iter();
    let blocks: Vec<String> = blocks.map(|(left, right)| format!("{left}-{right}")).collect();
    format!(
        "{}:{} > {}:{} seq={} ack={} [{}] win={} urg={} mss={} ws={} sackok={} sack={} ts={} options={} data={}/{} \
         id={} ttl={} ecn={} tunnel={} dir={:?} if={}",
        segment.source,
        segment.source_port,
        segment.destination,
        segment.destination_port,
        segment.seq,
        segment.ack,
        flag_names(segment.flags),
        segment.window,
        segment.urgent,
        or_dash(segment.mss),
        or_dash(segment.window_scale),
        u8::from(segment.sack_permitted),
        blocks.join(","),
        or_dash(segment.timestamps.map(|(sent, echo)| format!("{sent}/{echo}"))),
        options,
        segment.payload.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        segment.payload_len,
        or_dash(segment.ip_id.map(|id| format!("0x{id:04x}"))),
        segment.ttl,
        segment.ecn,
        or_dash(segment.tunnel.map(|tunnel| format!("{tunnel:?}"))),
        segment.packet_direction,
        segment.cooked_interface,
    )
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[test]
fn every_vector_means_what_its_maker_put_in() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 150);
    for vector in vectors {
        let mut dissector = Dissector::new();
        let outcome = dissector.dissect(vector.link_type, &vector.bytes, vector.original_len, 0);
        assert_eq!(describe(&outcome), vector.meaning, "{}", vector.name);
    }
}

/// A packet cut by the snapshot length keeps its meaning as far as it goes: the same segment with less payload, then
/// one without options, then a cut header. It never turns into something else.
#[test]
fn a_cut_packet_means_the_same_or_says_that_it_is_cut() {
    for vector in vectors() {
        let whole = Dissector::new().dissect(vector.link_type, &vector.bytes, vector.original_len, 0).payload_len();
        for length in 0..vector.bytes.len() {
            let cut = &vector.bytes[..length];
            let mut dissector = Dissector::new();
            match dissector.dissect(vector.link_type, cut, vector.original_len, 0) {
                Outcome::Tcp(segment) => {
                    assert_eq!(Some(segment.payload_len), whole, "{} at {length}", vector.name);
                    assert!(segment.payload.len() as u32 <= segment.payload_len);
                }
                Outcome::Malformed(malformed) if malformed.is_cut() => {}
                // the segment that an error quotes is not there
                Outcome::NotTcp(NotTcp::Icmp) if vector.meaning.starts_with("icmp") => {}
                outcome => assert_eq!(describe(&outcome), vector.meaning, "{} at {length}", vector.name),
            }
        }
    }
}

/// As above for packets that ended early on the wire: whatever comes out, it is no panic, and no payload is invented.
#[test]
fn a_packet_that_ended_early_never_panics() {
    for vector in vectors() {
        for length in 0..vector.bytes.len() {
            let short = &vector.bytes[..length];
            let mut dissector = Dissector::new();
            let outcome = dissector.dissect(vector.link_type, short, length as u32, 0);
            if let Outcome::Tcp(segment) = outcome {
                assert!(segment.payload.len() <= length, "{} at {length}", vector.name);
            }
        }
    }
}

impl Outcome<'_> {
    fn payload_len(&self) -> Option<u32> {
        match self {
            Outcome::Tcp(segment) => Some(segment.payload_len),
            _ => None,
        }
    }
}
