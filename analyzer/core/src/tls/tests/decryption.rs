//! What whole recordings decrypt to, and what is told without keys.

use crate::tls::{Reason, Suite};

use super::DECRYPTABLE;
use super::support::{Recording, Told};

fn run(name: &str) -> Told {
    Recording::load(name).run()
}

#[test]
fn plaintext_is_what_was_written() {
    for name in DECRYPTABLE {
        let recording = Recording::load(name);
        let told = recording.run();
        assert!(!recording.plain[0].is_empty() && !recording.plain[1].is_empty());
        assert_eq!(told.plain, recording.plain, "{name}");
        assert!(told.gaps.iter().all(Vec::is_empty) && told.lost(0).is_empty() && told.lost(1).is_empty(), "{name}");
        assert_eq!(told.events.iter().filter(|event| *event == "HandshakeComplete").count(), 1, "{name}");
        let plaintext = told.facts.sides.map(|counts| counts.plaintext as usize);
        assert_eq!(plaintext, recording.plain.each_ref().map(Vec::len), "{name}");
        assert!(told.facts.keys_found && told.facts.is_exact && told.facts.client == Some(0), "{name}");
    }
}

#[test]
fn the_begin_of_a_grpc_connection() {
    let recording = Recording::load("tls13-go");
    let told = recording.run();
    assert!(told.plain[0].starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    for side in 0..2 {
        assert!(told.plain[side].len() > 700, "{}", told.plain[side].len());
        assert!(recording.plain[side].starts_with(&told.plain[side]), "side {side} differs from tshark");
    }
    assert_eq!(told.facts.suite, Some(0x1301));
    assert_eq!(told.facts.alpn.as_deref(), Some(&b"h2"[..]));
}

#[test]
fn versions_suites_and_protocols() {
    let facts = |name: &str| {
        let facts = run(name).facts;
        assert_eq!(facts.offers().collect::<Vec<_>>()[0], b"h2", "{name}");
        (facts.version.unwrap(), facts.suite.unwrap(), facts.alpn.clone(), facts.resumed, facts.retried)
    };
    let h2 = Some(b"h2".to_vec());
    let full = Some(false);
    assert_eq!(facts("tls12-ecdhe-ecdsa-aes128"), (0x0303, 0xc02b, h2.clone(), full, false));
    assert_eq!(facts("tls12-ecdhe-rsa-aes256"), (0x0303, 0xc030, h2.clone(), full, false));
    assert_eq!(facts("tls12-ecdhe-ecdsa-chacha20"), (0x0303, 0xcca9, h2.clone(), full, false));
    assert_eq!(facts("tls12-rsa-aes128"), (0x0303, 0x009c, h2.clone(), full, false));
    assert_eq!(facts("tls12-resumed"), (0x0303, 0xc02b, h2.clone(), Some(true), false));
    assert_eq!(facts("tls13-aes128"), (0x0304, 0x1301, h2.clone(), full, false));
    assert_eq!(facts("tls13-aes256"), (0x0304, 0x1302, h2.clone(), full, false));
    assert_eq!(facts("tls13-chacha20"), (0x0304, 0x1303, h2.clone(), full, false));
    assert_eq!(facts("tls13-resumed"), (0x0304, 0x1302, h2.clone(), Some(true), false));
    assert_eq!(facts("tls13-hello-retry"), (0x0304, 0x1302, h2, full, true));
}

#[test]
fn key_updates() {
    let told = run("tls13-key-update");
    // The client updated with `k` and `K`, answered the server's none; the server answered `K` and updated with `k`.
    assert_eq!(told.facts.sides.map(|counts| counts.key_updates), [2, 2]);
    assert!(told.has("KeyUpdate { side: 0 }") && told.has("KeyUpdate { side: 1 }"));
    assert!(told.facts.sides[1].tickets > 0);
}

#[test]
fn early_data_are_told() {
    let recording = Recording::load("tls13-early-data");
    let told = recording.run();
    let facts = &told.facts;
    assert_eq!((facts.early_data_offered, facts.early_data_accepted, facts.resumed), (true, Some(true), Some(true)));
    assert_eq!(facts.sides[0].early, 2, "the data and EndOfEarlyData");
    assert_eq!((&told.plain, &told.gaps[0]), (&recording.plain, &vec![None]));
    let recording = Recording::load("tls13-early-data-rejected");
    let told = recording.run();
    let facts = &told.facts;
    assert_eq!((facts.early_data_offered, facts.early_data_accepted, facts.resumed), (true, Some(false), Some(false)));
    assert_eq!((&told.plain, told.gaps[0].len(), facts.sides[0].early), (&recording.plain, 0, 1));
}

#[test]
fn alerts_and_places() {
    let told = run("tls12-ecdhe-ecdsa-aes128");
    assert!(told.has("Alert { side: 0, level: 1, description: 0 }"), "close_notify: {:?}", told.events);
    assert!(told.places.iter().all(|(_, first, last)| first == last), "each record came in one piece");
    let facts = &told.facts;
    let times = [facts.client_hello, facts.server_hello, facts.client_finished, facts.server_finished];
    // Pieces: ClientHello; ServerHello to ServerHelloDone; the client's Finished; the server's; data.
    assert_eq!(times, [Some(0), Some(1), Some(2), Some(3)]);
    let resumed = run("tls12-resumed").facts;
    assert_eq!([resumed.server_finished, resumed.client_finished], [Some(1), Some(2)], "a round trip less");
    let tls13 = run("tls13-aes128").facts;
    let times = [tls13.client_hello, tls13.server_hello, tls13.server_finished, tls13.client_finished];
    assert_eq!(times, [Some(0), Some(1), Some(1), Some(2)]);
}

#[test]
fn without_keys() {
    for name in DECRYPTABLE {
        let recording = Recording::load(name);
        let with = recording.run().facts;
        let told = recording.without_keys(|_| true).run();
        assert_eq!((told.lost(0), told.lost(1)), (vec![Reason::NoKeys], vec![Reason::NoKeys]), "{name}");
        assert_eq!(told.plain, [Vec::<u8>::new(), Vec::new()]);
        assert!(told.has("HandshakeComplete") && !told.facts.keys_found, "{name}");
        let facts = &told.facts;
        assert_eq!((facts.version, facts.suite, facts.resumed), (with.version, with.suite, with.resumed), "{name}");
        assert_eq!(facts.client_finished, with.client_finished, "{name}");
        assert_eq!((facts.client_hello, facts.server_hello), (with.client_hello, with.server_hello), "{name}");
        assert_eq!(facts.is_exact, name.starts_with("tls12"), "{name}");
        for side in 0..2 {
            assert_eq!(facts.sides[side].records, with.sides[side].records);
            assert_eq!(facts.sides[side].bytes, with.sides[side].bytes);
            assert!(facts.sides[side].closed > 0 && facts.sides[side].opened == 0);
            let records = told.events.iter().filter(|e| e.starts_with(&format!("record of {side}"))).count();
            assert_eq!(records as u64, facts.sides[side].closed);
        }
    }
}

#[test]
fn a_suite_that_cannot_be_decrypted() {
    let told = run("tls12-cbc");
    assert_eq!((told.lost(0), told.lost(1)), (vec![Reason::SuiteUnsupported], vec![Reason::SuiteUnsupported]));
    assert_eq!(told.facts.suite, Some(0xc023));
    assert_eq!(Suite::find(0xc023), None);
    assert!(told.has("HandshakeComplete") && told.facts.keys_found && told.facts.is_exact);
    assert_eq!(told.facts.alpn.as_deref(), Some(&b"h2"[..]));
}

#[test]
fn keys_of_another_connection() {
    let mut recording = Recording::load("tls13-aes128");
    let other = Recording::load("tls13-resumed").without_keys(|line| !line.contains("CLIENT_RANDOM"));
    recording.keys = other.keys;
    assert_eq!(recording.run().lost(0), [Reason::NoKeys]);
    // The right random with a wrong secret.
    let mut recording = Recording::load("tls12-ecdhe-ecdsa-aes128");
    let end = recording.keys.trim_end().len();
    recording.keys.replace_range(end - 4..end, "0000");
    let told = recording.run();
    assert_eq!((told.lost(0), told.lost(1)), (vec![Reason::WrongKeys], vec![]), "the server sent too few records");
    assert_eq!(told.plain, [Vec::<u8>::new(), Vec::new()]);
    let gaps: u64 = told.gaps[1].iter().flatten().sum();
    assert_eq!(gaps, recording.plain[1].len() as u64, "each record was a gap");
}

#[test]
fn a_part_of_the_keys() {
    for name in ["tls13-aes128", "tls13-chacha20", "tls13-hello-retry", "tls13-resumed", "tls13-key-update"] {
        let recording = Recording::load(name).without_keys(|line| line.contains("HANDSHAKE"));
        let told = recording.run();
        assert_eq!(told.plain, recording.plain, "{name} without handshake secrets");
        assert!(told.facts.alpn.is_none() && told.has("HandshakeComplete") && !told.facts.is_exact, "{name}");
        let recording = Recording::load(name).without_keys(|line| line.contains("_0 "));
        let told = recording.run();
        assert_eq!((told.lost(0), told.lost(1)), (vec![Reason::NoKeys], vec![Reason::NoKeys]), "{name}");
        assert!(told.facts.alpn.is_some() && told.facts.is_exact, "{name} with handshake secrets only");
    }
}
