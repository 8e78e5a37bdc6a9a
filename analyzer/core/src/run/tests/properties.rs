//! What holds for every order, cut and repetition of segments.

use proptest::prelude::*;

use super::*;

/// One sending of a piece of the client's bytes: where it begins, how long it is, and how much of it was captured.
fn sendings() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    prop::collection::vec((0..600_usize, 0..200_usize, 0..200_usize), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// However bytes are sent in pieces, again and out of order: the whole is read once all of them have come.
    #[test]
    fn any_cover_of_the_bytes_reads_as_the_whole(sendings in sendings()) {
        let bytes = call("/a/B", 500);
        let mut capture = Capture::opened();
        for (start, length, _) in sendings {
            let start = start.min(bytes.len());
            let end = (start + length).min(bytes.len());
            capture.client(u32::try_from(start).unwrap(), &bytes[start..end]);
        }
        capture.client(0, &bytes);
        let seen = capture.finish();
        prop_assert_eq!(seen.methods(), [Some("/a/B".to_owned())]);
        prop_assert_eq!(&seen.cx.messages.length, &[500]);
        prop_assert_eq!(seen.connections.missing_bytes[0], 0);
        prop_assert_eq!(seen.connections.decoded_bytes[0], bytes.len() as u64);
    }

    /// Pieces of any bytes, some of them cut by the snapshot length: every captured byte is accounted for
    /// (`Capture::finish` checks it).
    #[test]
    fn captured_bytes_are_accounted_for(sendings in sendings(), acks in prop::collection::vec(0..800_u32, 0..60)) {
        let bytes = call("/a/B", 500);
        let mut capture = Capture::opened();
        for (number, (start, length, captured)) in sendings.into_iter().enumerate() {
            let start = start.min(bytes.len());
            let whole = &bytes[start..(start + length).min(bytes.len())];
            let cut = segment(ACK, from_client(u32::try_from(start).unwrap()), from_server(0), whole);
            capture.add(Segment { payload: &whole[..whole.len().min(captured)], ..cut });
            if let Some(&ack) = acks.get(number) {
                capture.server_acks(ack);
            }
        }
        let seen = capture.finish();
        prop_assert_eq!(seen.cx.out_of_order_bytes, 0);
    }

    /// Any sequence of headers: nothing panics, everything is accounted for.
    #[test]
    fn any_segments_do_no_harm(
        segments in prop::collection::vec(
            (any::<bool>(), any::<u32>(), any::<u32>(), 0..64_u16, 0..100_usize, -50..50_i64, any::<bool>()),
            0..80,
        ),
    ) {
        let payload = call("/a/B", 500);
        let mut capture = Capture::new();
        for (server, seq, ack, flags, length, step, near) in segments {
            let seq = if near { seq % 1_000 } else { seq };
            let make = if server { reply } else { segment };
            capture.at(capture.time + step * MS, make(TcpFlags(flags), seq, ack, &payload[..length]));
        }
        let seen = capture.finish();
        prop_assert!(seen.cx.rpcs.duration_ns.iter().chain(&seen.cx.waits.duration_ns).all(|&ns| ns >= 0));
    }
}
