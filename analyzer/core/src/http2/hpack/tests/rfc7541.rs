//! The examples of RFC 7541 Appendix C, with the tables printed there.

use super::super::Representation;
use super::super::reader::Reader;
use super::{Peer, hex};

const DATE_21: &str = "date: Mon, 21 Oct 2013 20:13:21 GMT";
const DATE_22: &str = "date: Mon, 21 Oct 2013 20:13:22 GMT";
const COOKIE: &str = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";

#[test]
fn c1_integers() {
    assert_eq!(Reader::new(&[0b1110_1010]).integer(5), Ok(10));
    assert_eq!(Reader::new(&[0b0001_1111, 0x9a, 0x0a]).integer(5), Ok(1337));
    // Example C.1.3 has a prefix of 8 bits, which no representation of the format uses.
    assert_eq!(Reader::new(&[0b0010_1010]).integer(7), Ok(42));
}

#[test]
fn c2_representations() {
    let cases = [
        (
            "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
            "custom-key: custom-header",
            Representation::LiteralIncremental,
            (55, vec!["custom-key: custom-header".to_string()]),
        ),
        (
            "040c 2f73 616d 706c 652f 7061 7468",
            ":path: /sample/path",
            Representation::LiteralWithoutIndexing,
            (0, vec![]),
        ),
        ("1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", Representation::NeverIndexed, (0, vec![])),
        ("82", ":method: GET", Representation::Indexed, (0, vec![])),
    ];
    for (block, expected, representation, table) in cases {
        let mut peer = Peer::from_start();
        let (fields, _) = peer.decode(&hex(block));
        assert_eq!(fields.len(), 1);
        assert_eq!(super::line(&fields[0]), expected);
        assert_eq!(fields[0].representation, representation);
        assert_eq!(peer.table(), table, "{expected}");
    }
}

/// Decodes blocks of one connection and compares fields, table size and table after each.
fn check(max_size: u32, exchange: &[(&str, &[&str], u32, &[&str])]) {
    let mut peer = Peer::from_start();
    peer.decoder.tables.dynamic.resize(max_size);
    for (block, fields, size, table) in exchange {
        assert_eq!(peer.lines(&hex(block)), *fields);
        let (actual_size, actual_table) = peer.table();
        assert_eq!((actual_size, actual_table.as_slice()), (*size, to_strings(table).as_slice()));
    }
}

fn to_strings(lines: &[&str]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

fn check_requests(blocks: [&str; 3]) {
    let host = ":authority: www.example.com";
    let get = |scheme, path, rest: &[&'static str]| [&[":method: GET", scheme, path, host], rest].concat();
    let first = get(":scheme: http", ":path: /", &[]);
    let second = get(":scheme: http", ":path: /", &["cache-control: no-cache"]);
    let third = get(":scheme: https", ":path: /index.html", &["custom-key: custom-value"]);
    check(
        4096,
        &[
            (blocks[0], &first, 57, &[host]),
            (blocks[1], &second, 110, &["cache-control: no-cache", host]),
            (blocks[2], &third, 164, &["custom-key: custom-value", "cache-control: no-cache", host]),
        ],
    );
}

#[test]
fn c3_requests_without_huffman() {
    check_requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn c4_requests_with_huffman() {
    check_requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

/// The table of 256 bytes makes each of these responses evict entries.
fn check_responses(blocks: [&str; 3]) {
    let (private, location) = ("cache-control: private", "location: https://www.example.com");
    let gzip = "content-encoding: gzip";
    check(
        256,
        &[
            (
                blocks[0],
                &[":status: 302", private, DATE_21, location],
                222,
                &[location, DATE_21, private, ":status: 302"],
            ),
            (
                blocks[1],
                &[":status: 307", private, DATE_21, location],
                222,
                &[":status: 307", location, DATE_21, private],
            ),
            (blocks[2], &[":status: 200", private, DATE_22, location, gzip, COOKIE], 215, &[COOKIE, gzip, DATE_22]),
        ],
    );
}

#[test]
fn c5_responses_without_huffman() {
    check_responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
         2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
         6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
         54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
         5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
         3d31",
    ]);
}

#[test]
fn c6_responses_with_huffman() {
    check_responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
         2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
         77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
         9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
}
