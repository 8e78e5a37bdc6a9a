//! What holds for every capture there is: the invariants of the decoding core.

use grpcdiag_core::capture_file::Source;
use grpcdiag_core::grpc::status::OK;
use grpcdiag_core::store::options::Options;
use std::collections::HashMap;

use crate::support::{
    Analysis, Rpc, all_tables, analyse, captures, difference, memory, more_captures, name, packets, packets_of, pcap,
    repository,
};

/// Captures above this are read once, not in many prefixes: 3,000 packets.
const SMALL: usize = 3_000;

#[test]
fn invariants_hold_for_every_capture() {
    for path in captures() {
        let packets = packets_of(&path);
        let whole = analyse(&packets, all_tables());
        let checked =
            whole.check_bytes().and_then(|()| whole.check_durations()).and_then(|()| whole.check_both_ends(&packets));
        assert_eq!(checked, Ok(()), "{}", name(&path));
        let counted: usize = whole.cx.totals.frames.iter().map(|&count| count as usize).sum();
        assert_eq!(counted, whole.cx.frames.len(), "{}: frames are counted as they are listed", name(&path));
        assert_eq!(whole.cx.totals.messages, whole.cx.messages.len() as u64, "{}", name(&path));
        assert_eq!(whole.counts.packets, packets.len() as u64);
    }
}

/// Invariant 6: the RPCs that are over in a prefix of a capture are those of the whole.
#[test]
fn a_prefix_gives_a_prefix_of_the_rpcs() {
    let mut wrong = Vec::new();
    for path in captures() {
        let packets = packets_of(&path);
        if packets.len() > SMALL {
            continue;
        }
        let whole = analyse(&packets, all_tables());
        for tenth in 0..10 {
            let length = packets.len() * tenth / 10;
            let differing = differing(&analyse(&packets[..length], all_tables()), &whole);
            wrong.extend(differing.into_iter().map(|rpcs| format!("{} after {length}: {rpcs}", name(&path))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The RPCs of a prefix that are not those of the whole.
fn differing(prefix: &Analysis, whole: &Analysis) -> Vec<String> {
    let expected: HashMap<(u32, u32), Rpc> =
        whole.rpcs().into_iter().map(|rpc| ((rpc.connection, rpc.stream), rpc)).collect();
    let differs = |rpc: &Rpc| match expected.get(&(rpc.connection, rpc.stream)) {
        // a hole at the prefix's end is filled later
        Some(same) if rpc.touches_gap() && !same.touches_gap() => same.method != rpc.method,
        // its client never received the response, as later packets show
        Some(same) if rpc.status == OK && same.status != OK => same.response != rpc.response,
        Some(same) if rpc.is_complete() => same != rpc,
        Some(same) => (&same.method, same.times.0, same.packets.0) != (&rpc.method, rpc.times.0, rpc.packets.0),
        None => true,
    };
    let wrong = prefix.rpcs().into_iter().filter(differs);
    wrong.map(|rpc| format!("{rpc:?} is not {:?}", expected.get(&(rpc.connection, rpc.stream)))).collect()
}

/// Invariant 6: a capture cut into files reads as the whole, in whatever order the files are given.
#[test]
fn rotated_files_read_as_the_whole() {
    let whole = packets_of(&repository("fixtures/recorded/impl-go.pcap"));
    let quarter = whole.len() / 4;
    let files: Vec<Vec<u8>> = [0..quarter, quarter..quarter + 1, quarter + 1..3 * quarter, 3 * quarter..whole.len()]
        .map(|r| pcap(&whole[r]))
        .into();
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        let sources: Vec<Source> = order.iter().map(|&file| memory(&format!("{file}"), files[file].clone())).collect();
        let found = analyse(&packets(sources), all_tables());
        assert_eq!(difference(found, analyse(&whole, all_tables())), None, "{order:?}");
    }
}

#[test]
fn recorded_rotated_files_read_in_any_order() {
    let Some(folder) = more_captures() else {
        return eprintln!("skipped: rotated.pcap00 to 03; name their folder in GRPCDIAG_CAPTURES");
    };
    let sources = |order: [u32; 4]| order.map(|file| Source::Path(folder.join(format!("rotated.pcap0{file}")))).into();
    let whole = packets(sources([0, 1, 2, 3]));
    let rpcs = analyse(&whole, Options { rpc_rows: true, ..Options::default() }).rpcs();
    assert_eq!(rpcs.len(), 3_000, "as the client counted");
    assert!(rpcs.iter().all(|rpc| rpc.is_complete() && rpc.status == 0 && rpc.request.0 == 1 && rpc.response.0 == 1));
    for order in [[3, 2, 1, 0], [2, 0, 3, 1]] {
        let found = analyse(&packets(sources(order)), all_tables());
        assert_eq!(difference(found, analyse(&whole, all_tables())), None, "{order:?}");
    }
}
