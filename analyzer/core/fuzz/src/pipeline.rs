//! A whole run: a capture's bytes to tables, with the keys of the recorded sessions, and the invariants of the tables.

use grpcdiag_core::capture_file::{CaptureReader, Source};
use grpcdiag_core::run::interval::join_intervals;
use grpcdiag_core::run::pipeline::Pipeline;
use std::sync::Arc;

use super::input;
use super::support::{Analysis, Recorded, all_tables, pcap};
use super::tls::RECORDED_KEYS;

/// An input is a file.
pub fn run(data: &[u8]) {
    let source = Source::Reader("input".to_owned(), Box::new(std::io::Cursor::new(data.to_vec())));
    let Ok(mut reader) = CaptureReader::open(vec![source]) else { return };
    let mut pipeline = Pipeline::with_keys(all_tables(), Arc::clone(&RECORDED_KEYS));
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        pipeline.packet(&packet);
        // only the times are compared
        packets.push(Recorded { time_ns: packet.time_ns, link_type: 0, original_len: 0, captured: Vec::new() });
    }
    let (finished, cx, counts) = pipeline.finish();
    assert_eq!(cut_into_pieces(data), counts.packets);
    let analysis = Analysis { finished, cx, counts };
    assert_eq!(analysis.check_bytes(), Ok(()));
    assert_eq!(analysis.check_durations(), Ok(()));
    assert_eq!(analysis.check_both_ends(&packets), Ok(()));
}

/// Reads the same input, cut behind every seventh packet, and counts the packets of all intervals.
fn cut_into_pieces(data: &[u8]) -> u64 {
    let source = Source::Reader("input".to_owned(), Box::new(std::io::Cursor::new(data.to_vec())));
    let Ok(mut reader) = CaptureReader::open(vec![source]) else { return 0 };
    let mut pipeline = Pipeline::live(all_tables(), Arc::clone(&RECORDED_KEYS));
    let mut intervals = Vec::new();
    while let Some(packet) = reader.next_packet() {
        pipeline.packet(&packet);
        if packet.number % 7 == 0 {
            intervals.push(pipeline.cut(packet.time_ns));
        }
    }
    intervals.push(pipeline.cut_last(0));
    let Some((finished, cx, counts)) = join_intervals(intervals.iter()) else { return 0 };
    let packets = counts.packets;
    assert_eq!(Analysis { finished, cx, counts }.check_durations(), Ok(()));
    packets
}

pub fn seeds() -> Vec<Vec<u8>> {
    input::slices().iter().map(|slice| pcap(slice)).collect()
}
