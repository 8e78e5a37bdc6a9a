//! Gaps, damaged bytes and bytes that are not TLS.

use crate::limits::TLS_BUFFERS;
use crate::tls::Reason;

use super::DECRYPTABLE;
use super::support::{Piece, Recording};

/// Offsets of the records in a side's bytes, with their lengths on the wire.
fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut offset, mut records) = (0, vec![]);
    while let Some(&[_, _, _, high, low]) = bytes.get(offset..).and_then(|rest| rest.first_chunk::<5>()) {
        let length = 5 + usize::from(u16::from_be_bytes([high, low]));
        records.push((offset, length));
        offset += length;
    }
    records
}

/// A gap of the client's second request, over two record boundaries.
fn lost_request(recording: &Recording) -> Recording {
    let all = records(&recording.bytes(0));
    let [(begin, _), (end, _)] = [all[all.len() - 6], all[all.len() - 4]];
    recording.clone().with_gap(0, begin..end)
}

/// The last `count` records of the server in a recording: the data before "end of server".
fn tail(recording: &Recording, count: usize) -> Vec<(usize, usize)> {
    let all = records(&recording.bytes(1));
    all[all.len() - count..].to_vec()
}

#[test]
fn a_gap_within_a_record_costs_that_record() {
    for name in DECRYPTABLE.iter().filter(|name| !name.contains("update") && !name.contains("reneg")) {
        let recording = Recording::load(name);
        // The server ends with four answers, the last of 180 bytes, and "end of server" (13), then perhaps an alert.
        let (offset, length) = *tail(&recording, 4).iter().find(|(_, length)| *length > 180).unwrap();
        for gap in [offset + 5..offset + length, offset + 20..offset + 40, offset + length - 1..offset + length] {
            let told = recording.clone().with_gap(1, gap.clone()).run();
            let missing = told.gaps[1].iter().map(|length| length.unwrap() as usize).sum::<usize>();
            assert_eq!(told.gaps[1].len(), 1, "{name} {gap:?}");
            assert_eq!(told.plain[1].len() + missing, recording.plain[1].len(), "{name} {gap:?}");
            assert!(told.plain[1].ends_with(b"end of server") && told.lost(1).is_empty(), "{name} {gap:?}");
            assert_eq!(told.plain[0], recording.plain[0], "{name}");
            assert_eq!(told.facts.sides[1].damaged, 1);
        }
    }
}

#[test]
fn the_sequence_is_found_again_after_lost_records() {
    for name in DECRYPTABLE.iter().filter(|name| !name.contains("update") && !name.contains("reneg")) {
        let recording = Recording::load(name);
        // The client's four requests of 10, 60, 110 and 160 bytes follow the preface.
        let all = records(&recording.bytes(0));
        // Then come "end of client" and an alert.
        let preface = all.len() - 7;
        for lost in 1..=2 {
            let (begin, _) = all[preface + 1];
            let (end, _) = all[preface + 1 + lost];
            // From within the header of the first to within the body of the last one.
            for gap in [begin..end, begin + 3..end - 1, begin + 7..end, begin..end - 7] {
                let told = recording.clone().with_gap(0, gap.clone()).run();
                let sizes = [10, 60];
                let missing: u64 = sizes[..lost].iter().sum();
                assert_eq!(told.lost(0), [], "{name} {gap:?}");
                assert_eq!(told.facts.sides[0].resyncs, u64::from(gap.start != begin + 7 || lost > 1), "{name}");
                assert_eq!(told.gaps[0].iter().flatten().sum::<u64>(), missing, "{name} {gap:?}");
                let expected = [&recording.plain[0][..24], &recording.plain[0][24 + missing as usize..]].concat();
                assert_eq!(told.plain[0], expected, "{name} {gap:?}");
            }
        }
    }
}

#[test]
fn a_gap_in_the_certificate_costs_nothing_but_the_handshake() {
    // TLS 1.3 of OpenSSL: ServerHello, ChangeCipherSpec, then one encrypted record per message.
    for name in ["tls13-aes128", "tls13-aes256", "tls13-chacha20"] {
        let recording = Recording::load(name);
        let (offset, length) = *records(&recording.bytes(1)).iter().find(|(_, length)| *length > 300).unwrap();
        for gap in [offset + 100..offset + 110, offset + length - 20..offset + length + 3] {
            let told = recording.clone().with_gap(1, gap.clone()).run();
            assert_eq!((&told.plain, told.lost(1)), (&recording.plain, vec![]), "{name} {gap:?}");
        }
    }
}

#[test]
fn a_lost_server_hello_is_told() {
    for name in DECRYPTABLE {
        let recording = Recording::load(name);
        let told = recording.clone().with_gap(1, 0..60).run();
        assert_eq!(
            (told.lost(0), told.lost(1)),
            (vec![Reason::HandshakeMissing], vec![Reason::HandshakeMissing]),
            "{name}"
        );
        let told = recording.with_gap(0, 0..60).run();
        assert_eq!(told.lost(0), [Reason::HandshakeMissing], "{name}");
    }
}

#[test]
fn a_connection_begun_before_the_capture() {
    let mut recording = Recording::load("tls13-aes128");
    let cut = recording.pieces.len() / 2;
    recording.pieces.drain(..cut);
    let told = recording.run();
    assert_eq!((told.lost(0), told.lost(1)), (vec![Reason::HandshakeMissing], vec![Reason::HandshakeMissing]));
    assert_eq!(told.facts.sides[0].records, told.facts.sides[0].closed);
    // Begun within a record.
    recording.pieces.insert(0, (0, Piece::Gap(0)));
    let Piece::Bytes(bytes) = &mut recording.pieces[1].1 else { panic!("bytes") };
    bytes.drain(..7);
    let told = recording.run();
    assert_eq!(told.lost(recording.pieces[1].0), [Reason::HandshakeMissing]);
}

#[test]
fn a_byte_changed_costs_a_record() {
    let mut recording = Recording::load("tls13-aes128");
    let last = recording.pieces.iter_mut().rfind(|(side, _)| *side == 1).unwrap();
    let Piece::Bytes(bytes) = &mut last.1 else { panic!("bytes") };
    *bytes.last_mut().unwrap() ^= 1;
    let told = recording.run();
    assert_eq!(told.gaps, [vec![], vec![Some("end of server".len() as u64)]]);
    assert_eq!(recording.plain[1], [&told.plain[1][..], b"end of server"].concat());
    assert_eq!((told.facts.sides[1].closed, told.lost(1)), (1, vec![]));
}

#[test]
fn wrong_keys_are_told_after_a_few_records() {
    let mut recording = Recording::load("tls13-aes128");
    let line = recording.keys.lines().find(|line| line.starts_with("SERVER_TRAFFIC_SECRET_0")).unwrap().to_owned();
    recording.keys = recording.keys.replace(&line, &format!("{}00000000", &line[..line.len() - 8]));
    let told = recording.run();
    assert_eq!(told.plain[0], recording.plain[0]);
    assert_eq!(told.plain[1], [0u8; 0]);
    assert_eq!(told.lost(1), [Reason::WrongKeys]);
}

#[test]
fn shared_limits_end_decryption_and_nothing_else() {
    let recording = lost_request(&Recording::load("tls13-aes128"));
    assert_eq!(recording.run().lost(0), []);
    let mut decryptor = recording.decryptor();
    decryptor.attempts = 0;
    let told = recording.run_with(&mut decryptor);
    assert_eq!((told.lost(0), told.lost(1)), (vec![Reason::SequenceLost], vec![]), "no attempts are left");
    assert!(told.plain[0].len() < recording.plain[0].len() && told.plain[1] == recording.plain[1]);

    let mut decryptor = recording.decryptor();
    decryptor.in_use = TLS_BUFFERS;
    let told = recording.run_with(&mut decryptor);
    assert_eq!(told.plain, [Vec::<u8>::new(), Vec::new()], "no buffers are left");
    assert_eq!(told.lost(0), [Reason::HandshakeMissing]);
    assert_eq!(decryptor.buffers_in_use(), TLS_BUFFERS);
}

#[test]
fn what_is_not_tls() {
    let pieces = vec![(0, Piece::Bytes(b"GET / HTTP/1.1\r\n\r\n".to_vec())), (1, Piece::Bytes(vec![0x17; 100_000]))];
    let told = Recording { pieces, ..Recording::default() }.run();
    assert_eq!((told.lost(0), told.lost(1)), (vec![Reason::NotTls], vec![Reason::NotTls]));
    assert_eq!(told.facts.sides.map(|counts| (counts.records, counts.resyncs)), [(0, 1), (0, 1)]);
}
