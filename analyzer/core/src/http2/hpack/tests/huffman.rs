//! The Huffman code against the table of RFC 7541 Appendix B and a decoder that goes bit by bit.

use proptest::prelude::*;

use super::super::HpackErrorKind;
use super::super::huffman::{decode, decoded_bound, decoded_len, derived_codes};
use super::encoder::{DERIVED, huffman, pack, push_bits};
use super::hex;
use super::rfc_codes::CODES;

fn decoded(input: &[u8]) -> Result<Vec<u8>, HpackErrorKind> {
    let mut output = vec![0; decoded_bound(input.len()) + 1];
    let len = decode(input, &mut output)?;
    output.truncate(len);
    Ok(output)
}

/// Decodes with nothing but the printed codes.
fn decoded_bit_by_bit(input: &[u8]) -> Option<Vec<u8>> {
    let lengths = &*DERIVED;
    let (mut output, mut code, mut bits) = (Vec::new(), 0_u32, 0_u8);
    for bit in input.iter().flat_map(|octet| (0..8).rev().map(move |nth| octet >> nth & 1)) {
        (code, bits) = (code << 1 | u32::from(bit), bits + 1);
        let symbol = (0..257).find(|&symbol| CODES[symbol] == code && lengths[symbol].1 == bits);
        if let Some(symbol) = symbol {
            output.push(u8::try_from(symbol).ok()?);
            (code, bits) = (0, 0);
        }
    }
    (bits < 8 && code == (1 << bits) - 1).then_some(output)
}

#[test]
fn derived_codes_are_those_of_the_rfc() {
    let derived: Vec<u32> = derived_codes().iter().map(|(code, _)| *code).collect();
    assert_eq!(derived, CODES);
    // Codes and lengths from several rows of the table: '0', 'a', 'X', '{', 128, 195, 249, EOS.
    let printed = [
        (48, 0x0, 5),
        (97, 0x3, 5),
        (88, 0xfc, 8),
        (123, 0x7ffe, 15),
        (128, 0xf_ffe6, 20),
        (195, 0x7_fff1, 19),
        (249, 0xfff_fffe, 28),
        (256, 0x3fff_ffff, 30),
    ];
    for (symbol, code, bits) in printed {
        assert_eq!(derived_codes()[symbol], (code, bits), "symbol {symbol}");
    }
}

#[test]
fn the_code_is_complete() {
    // Kraft's equality: every bit string decodes, so that no input is left undefined.
    let sum: u64 = derived_codes().iter().map(|(_, bits)| 1 << (30 - bits)).sum();
    assert_eq!(sum, 1 << 30);
}

#[test]
fn strings_of_the_rfc_decode() {
    let cases = [
        ("f1e3 c2e5 f23a 6ba0 ab90 f4ff", "www.example.com"),
        ("9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3", "https://www.example.com"),
        ("", ""),
    ];
    for (input, expected) in cases {
        assert_eq!(decoded(&hex(input)), Ok(expected.as_bytes().to_vec()));
    }
}

#[test]
fn every_symbol_decodes_at_every_alignment() {
    for symbol in 0..=255 {
        for before in 0..9 {
            let text = [vec![b'a'; before], vec![symbol; 3]].concat();
            assert_eq!(decoded(&huffman(&text)), Ok(text.clone()));
            assert_eq!(decoded_len(&huffman(&text)), Ok(text.len()));
        }
    }
}

#[test]
fn padding_of_seven_ones_is_the_longest() {
    // '1' is 00001 and 'X' has 8 bits: 11111100.
    assert_eq!(decoded(&[0b0000_1111]), Ok(b"1".to_vec()));
    assert_eq!(decoded(&[0b1111_1100]), Ok(b"X".to_vec()));
    for bad in [&[0xff][..], &[0b1111_1100, 0xff], &[0b0000_1110], &[0x0f, 0xff], &[0xff; 3]] {
        assert_eq!(decoded(bad), Err(HpackErrorKind::HuffmanPadding), "{bad:x?}");
        assert_eq!(decoded_len(bad), Err(HpackErrorKind::HuffmanPadding), "{bad:x?}");
    }
}

#[test]
fn end_of_string_inside_a_string_is_an_error() {
    for text in [&b""[..], b"a", b"www.example.com"] {
        let mut bits = Vec::new();
        text.iter().for_each(|&octet| push_bits(&mut bits, usize::from(octet)));
        push_bits(&mut bits, 256);
        push_bits(&mut bits, usize::from(b'a'));
        let input = pack(&bits);
        assert_eq!(decoded(&input), Err(HpackErrorKind::HuffmanEndOfString));
        assert_eq!(decoded_len(&input), Err(HpackErrorKind::HuffmanEndOfString));
    }
}

#[test]
fn the_bound_is_reached_by_the_shortest_codes() {
    for len in 0..100 {
        let longest = (0..).take_while(|&n| huffman(&vec![b'0'; n]).len() <= len).last().unwrap();
        assert_eq!(decoded_bound(len), longest);
    }
}

proptest! {
    #[test]
    fn round_trip(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let encoded = huffman(&text);
        prop_assert_eq!(decoded_len(&encoded), Ok(text.len()));
        prop_assert_eq!(decoded(&encoded), Ok(text));
    }

    #[test]
    fn any_bytes_decode_as_bit_by_bit(input in proptest::collection::vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(decoded(&input).ok(), decoded_bit_by_bit(&input));
        prop_assert_eq!(decoded_len(&input), decoded(&input).map(|text| text.len()));
    }
}
