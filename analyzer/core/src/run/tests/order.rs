//! Bytes in the order in which they were meant: wrap-around, reordering, retransmission, overlap.

use super::*;

/// Cuts a call's bytes into segments of `size` at sequence numbers from `isn` + 1 on, in an order, and gives the RPC's
/// request bytes.
fn delivered(isn: u32, size: usize, order: impl Fn(&mut Vec<(u32, Vec<u8>)>)) -> Seen {
    let bytes = call("/a/B", 5_000);
    let mut pieces: Vec<(u32, Vec<u8>)> = bytes
        .chunks(size)
        .scan(isn.wrapping_add(1), |seq, chunk| {
            let at = *seq;
            *seq = seq.wrapping_add(u32::try_from(chunk.len()).unwrap());
            Some((at, chunk.to_vec()))
        })
        .collect();
    order(&mut pieces);
    let mut capture = Capture::new();
    capture.add(segment(SYN, isn, 0, &[]));
    capture.add(reply(SYN_ACK, SERVER_ISN, isn.wrapping_add(1), &[]));
    capture.add(segment(ACK, isn.wrapping_add(1), from_server(0), &[]));
    for (seq, payload) in &pieces {
        capture.add(segment(ACK, *seq, from_server(0), payload));
    }
    let end = isn.wrapping_add(1).wrapping_add(u32::try_from(bytes.len()).unwrap());
    capture.add(reply(ACK, from_server(0), end, &[frame(4, 0, 0, &[]), response(1, 1)].concat()));
    capture.finish()
}

#[track_caller]
fn assert_whole(seen: &Seen) {
    assert_eq!(seen.methods(), [Some("/a/B".to_owned())]);
    assert_eq!((seen.cx.rpc_sizes.request_messages[0], seen.cx.rpc_sizes.request_bytes[0]), (1, 5_000));
    assert_eq!((seen.connections.missing_bytes[0], seen.connections.undecoded_bytes[0]), (0, 0));
    assert_eq!(seen.problems(), [""; 0]);
}

#[test]
fn sequence_numbers_wrap_around() {
    for before in [0, 1, 2, 100, 1_000, 4_999, 5_200] {
        let seen = delivered(0_u32.wrapping_sub(before), 1_000, |_| ());
        assert_whole(&seen);
        assert_eq!((seen.connections.out_of_order_packets[0], seen.connections.retransmitted_packets[0]), (0, 0));
    }
}

#[test]
fn offsets_of_the_packets_table_do_not_wrap() {
    let seen = delivered(u32::MAX - 1_500, 1_000, |_| ());
    let packets = &seen.cx.packets;
    let offsets: Vec<u64> =
        (0..packets.len()).filter(|&row| packets.payload_bytes[row] >= 1_000).map(|row| packets.seq[row]).collect();
    assert_eq!(offsets, [0, 1_000, 2_000, 3_000, 4_000]);
}

#[test]
fn reordered_segments_are_put_in_order() {
    for (from, to) in [(0, 1), (0, 5), (1, 3), (5, 0), (4, 1)] {
        let seen = delivered(u32::MAX - 2_000, 900, |pieces| {
            let moved = pieces.remove(from);
            pieces.insert(to, moved);
        });
        assert_whole(&seen);
        assert!(seen.connections.out_of_order_packets[0] > 0, "{from} to {to}");
        assert_eq!(seen.connections.retransmitted_bytes[0], 0);
    }
    assert_whole(&delivered(7, 100, |pieces| pieces.reverse()));
}

/// What waited for a hole was readable when the hole was filled, and not before.
#[test]
fn the_packet_that_fills_the_hole_completes_the_message() {
    let seen = delivered(7, 3_000, |pieces| pieces.swap(0, 1));
    assert_whole(&seen);
    let messages = &seen.cx.messages;
    assert_eq!(
        (messages.first_packet[0], messages.last_packet[0]),
        (5, 5),
        "the handshake is 1 to 3, the rest came as 4"
    );
    assert_eq!((messages.first_time_ns[0], messages.last_time_ns[0]), (5 * MS, 5 * MS));
    assert_eq!((seen.cx.rpcs.first_packet[0], seen.cx.rpcs.start_time_ns[0]), (5, 5 * MS));
}

#[test]
fn a_retransmission_is_counted_and_read_once() {
    let seen = delivered(7, 1_000, |pieces| {
        let again = pieces[1].clone();
        pieces.insert(3, again.clone());
        pieces.push(again);
    });
    assert_whole(&seen);
    let table = &seen.connections;
    assert_eq!((table.retransmitted_packets[0], table.retransmitted_bytes[0]), (2, 2_000));
    let notes = seen.notes();
    assert_eq!(notes.iter().filter(|&&note| note == Note::Retransmission).count(), 2, "{notes:?}");
    assert_eq!((notes[3], notes.len()), (Note::Retransmission, 9));
}

#[test]
fn a_retransmission_in_other_pieces_is_read_once() {
    let whole = call("/a/B", 5_000);
    let seen = delivered(7, 1_000, |pieces| {
        // bytes 500 to 2,500 again, of which 2,000 to 2,500 are new
        pieces.insert(2, (8 + 500, whole[500..2_500].to_vec()));
    });
    assert_whole(&seen);
    assert_eq!(seen.connections.retransmitted_bytes[0], 1_500 + 500, "of the longer one, and then of the next");
}

/// As an injector would send it: the bytes recorded first hold.
#[test]
fn overlapping_bytes_that_differ_do_not_replace_the_first() {
    let (real, forged) = (call("/real/Method", 10), call("/fake/Method", 10));
    assert_eq!(real.len(), forged.len());
    for cut in 34..80 {
        let mut capture = Capture::opened();
        capture.client(0, &real[..cut]);
        capture.client(0, &forged);
        capture.server(0, &[frame(4, 0, 0, &[]), response(1, 1)].concat());
        let seen = capture.finish();
        let (method, name) = (seen.methods().remove(0).unwrap(), real.windows(5).position(|w| w == b"/real").unwrap());
        let kept = cut.saturating_sub(name).min("/real/Method".len());
        assert_eq!(method.as_bytes()[..kept], b"/real/Method"[..kept], "cut at {cut}");
        assert_eq!(method.as_bytes()[kept..], b"/fake/Method"[kept..], "cut at {cut}");
        assert_eq!(seen.connections.retransmitted_bytes[0], cut as u64);
    }
}

#[test]
fn out_of_order_segments_at_one_offset_keep_the_first() {
    let (real, forged) = (call("/real/Method", 10), call("/fake/Method", 10));
    let mut capture = Capture::opened();
    capture.client(30, &real[30..]);
    capture.client(30, &forged[30..]);
    capture.client(0, &real[..30]);
    let seen = capture.finish();
    assert_eq!(seen.methods(), [Some("/real/Method".to_owned())]);
    assert_eq!(seen.connections.retransmitted_bytes[0], (forged.len() - 30) as u64);
    assert_eq!(seen.notes()[..2], [Note::OutOfOrder, Note::Retransmission]);
    assert_eq!(seen.connections.retransmitted_packets[0], 1);
}

/// Sent ahead of a hole first as a short and then as a longer segment: the shorter one's bytes hold.
#[test]
fn a_longer_out_of_order_segment_adds_its_end_only() {
    let (real, forged) = (call("/real/Method", 10), call("/fake/Method", 10));
    let mut capture = Capture::opened();
    capture.client(30, &real[30..80]);
    capture.client(30, &forged[30..]);
    capture.client(0, &real[..30]);
    let seen = capture.finish();
    assert_eq!(seen.methods(), [Some("/real/Method".to_owned())]);
    assert_eq!(seen.connections.retransmitted_bytes[0], 50);
}

/// Late by less than a round trip, bytes were passed on their way; later than that, lost before the capture point and
/// retransmitted.
/// The sender's clock tells a quick retransmission from reordering; it wraps like sequence numbers.
#[test]
fn a_clock_past_that_of_later_bytes_means_sent_again() {
    let bytes = call("/a/B", 300);
    for (behind, clock, note) in [
        (1_000, 1_001, Note::Retransmission),
        (1_000, 1_000, Note::OutOfOrder),
        (1_000, 999, Note::OutOfOrder),
        (u32::MAX - 1, 2, Note::Retransmission),
        (2, u32::MAX - 1, Note::OutOfOrder),
    ] {
        let mut capture = Capture::opened();
        let stamped = |offset: usize, end: usize, clock: u32| Segment {
            timestamps: Some((clock, 0)),
            ..segment(ACK, from_client(offset as u32), from_server(0), &bytes[offset..end])
        };
        capture.add(stamped(0, 100, 990));
        capture.add(stamped(200, 300, behind));
        capture.at(capture.time + 1_000, stamped(100, 200, clock));
        let seen = capture.finish();
        assert_eq!(seen.notes(), [Note::None, Note::OutOfOrder, note], "{behind} then {clock}");
        assert_eq!(seen.connections.retransmitted_packets[0], u32::from(note == Note::Retransmission));
    }
}

/// Only bytes behind a segment's own were sent after it: those in front, kept too, tell nothing.
#[test]
fn a_clock_in_front_decides_nothing() {
    let bytes = call("/a/B", 400);
    let mut capture = Capture::opened();
    let pieces = [(0, 50, 990), (100, 150, 1_000), (200, 250, 1_005), (150, 200, 1_002)];
    for (offset, end, clock) in pieces {
        let timestamps = Some((clock, 0));
        let piece = segment(ACK, from_client(offset as u32), from_server(0), &bytes[offset..end]);
        capture.at(capture.time + 1_000, Segment { timestamps, ..piece });
    }
    let seen = capture.finish();
    assert_eq!(seen.notes(), [Note::None, Note::OutOfOrder, Note::OutOfOrder, Note::OutOfOrder]);
}

/// A segment that waits behind a hole and comes once more was retransmitted, however soon.
#[test]
fn a_kept_segment_that_comes_again_was_sent_again() {
    let bytes = call("/a/B", 300);
    let mut capture = Capture::opened();
    capture.client(0, &bytes[..100]);
    for _ in 0..2 {
        let again = segment(ACK, from_client(200), from_server(0), &bytes[200..]);
        capture.at(capture.time + 1_000, again);
    }
    capture.client(100, &bytes[100..200]);
    let seen = capture.finish();
    assert_eq!(seen.notes()[1..3], [Note::OutOfOrder, Note::Retransmission]);
    assert_eq!(seen.connections.retransmitted_packets[0], 1);
}

#[test]
fn what_fills_a_hole_was_reordered_or_sent_again() {
    for (late, note, retransmitted) in [(3 * MS, Note::OutOfOrder, 0), (250 * MS, Note::Retransmission, 1)] {
        let bytes = call("/a/B", 3_000);
        let mut capture = Capture::opened();
        capture.client(0, &bytes[..1_000]);
        capture.client(2_000, &bytes[2_000..]);
        let filler = segment(ACK, from_client(1_000), from_server(0), &bytes[1_000..2_000]);
        capture.at(capture.time + late, filler);
        let seen = capture.finish();
        assert_eq!(seen.notes(), [Note::None, Note::OutOfOrder, note]);
        assert_eq!(seen.connections.retransmitted_packets[0], retransmitted);
        assert_eq!(seen.connections.retransmitted_bytes[0], 0, "no byte came twice");
    }
}
