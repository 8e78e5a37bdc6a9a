//! Throughput of each stage on a recorded capture: 3,000 unary calls of grpc-c++ on one connection.

use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use grpcdiag_core::capture_file::{CaptureReader, Packet, Source};
use grpcdiag_core::context::Options;
use grpcdiag_core::grpc::headers::Strings;
use grpcdiag_core::http2::frame::{FrameHeader, FrameType, HEADER_LEN};
use grpcdiag_core::http2::{detect::PREFACE, headers, hpack::Decoder};
use grpcdiag_core::packet::{Dissector, Outcome};
use grpcdiag_core::pipeline::Pipeline;

const CAPTURE: &str = "../../fixtures/recorded/ydb-unary-single-inflight1.pcap";

/// A packet without its bytes, which are in the capture's.
type Recorded = (u32, i64, u32, u32, Vec<u8>);

fn file() -> Arc<[u8]> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CAPTURE);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).into()
}

fn open(file: &Arc<[u8]>) -> CaptureReader {
    let stream = Box::new(Cursor::new(Arc::clone(file)));
    CaptureReader::open(vec![Source::Reader("memory".to_owned(), stream)]).expect("a capture")
}

fn packets(file: &Arc<[u8]>) -> Vec<Recorded> {
    let mut reader = open(file);
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let captured = packet.captured.to_vec();
        packets.push((packet.number, packet.time_ns, packet.link_type, packet.original_len, captured));
    }
    packets
}

fn packet((number, time_ns, link_type, original_len, captured): &Recorded) -> Packet<'_> {
    Packet {
        number: *number,
        time_ns: *time_ns,
        link_type: *link_type,
        interface: 0,
        captured,
        original_len: *original_len,
    }
}

/// The client's header blocks: its connection is whole and in order in this capture.
fn header_blocks(packets: &[Recorded]) -> Vec<Vec<u8>> {
    let mut dissector = Dissector::new();
    let mut bytes = Vec::new();
    for (_, time, link_type, length, captured) in packets {
        if let Outcome::Tcp(segment) = dissector.dissect(*link_type, captured, *length, *time)
            && segment.destination_port < segment.source_port
        {
            bytes.extend_from_slice(segment.payload);
        }
    }
    let mut rest = bytes.strip_prefix(PREFACE).expect("the client's preface");
    let mut blocks = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<HEADER_LEN>() {
        let header = FrameHeader::parse(head);
        let Some((payload, after)) = after.split_at_checked(header.length() as usize) else { break };
        if header.kind() == FrameType::HEADERS {
            blocks.push(headers::parse(&header, payload).expect("a HEADERS frame").fragment.to_vec());
        }
        rest = after;
    }
    assert_eq!(blocks.len(), 3_000, "one per call");
    blocks
}

fn read_capture(criterion: &mut Criterion) {
    let file = file();
    let mut group = criterion.benchmark_group("capture_file");
    group.throughput(Throughput::Bytes(file.len() as u64));
    group.bench_function("read", |bencher| {
        bencher.iter(|| {
            let mut reader = open(&file);
            while let Some(packet) = reader.next_packet() {
                black_box(packet);
            }
        });
    });
    group.finish();
}

fn dissect(criterion: &mut Criterion) {
    let packets = packets(&file());
    let mut group = criterion.benchmark_group("packet");
    group.throughput(Throughput::Bytes(packets.iter().map(|packet| packet.4.len() as u64).sum()));
    group.bench_function("dissect", |bencher| {
        let mut dissector = Dissector::new();
        bencher.iter(|| {
            for (_, time, link_type, length, captured) in &packets {
                black_box(dissector.dissect(*link_type, black_box(captured), *length, *time));
            }
        });
    });
    group.finish();
}

fn decode_header_blocks(criterion: &mut Criterion) {
    let blocks = header_blocks(&packets(&file()));
    let mut group = criterion.benchmark_group("hpack");
    group.throughput(Throughput::Bytes(blocks.iter().map(|block| block.len() as u64).sum()));
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            let mut strings = Strings::default();
            let mut decoder = Decoder::new(&mut strings);
            for block in &blocks {
                let done = decoder.decode(black_box(block), &mut strings, &mut |field| {
                    black_box(field.class);
                });
                done.expect("a sound header block");
            }
        });
    });
    group.finish();
}

fn whole(criterion: &mut Criterion) {
    let file = file();
    let packets = packets(&file);
    let mut group = criterion.benchmark_group("pipeline");
    group.throughput(Throughput::Bytes(file.len() as u64));
    group.bench_function("packets_to_tables", |bencher| {
        bencher.iter(|| {
            let mut pipeline = Pipeline::new(Options::default());
            packets.iter().for_each(|recorded| pipeline.packet(&packet(recorded)));
            black_box(pipeline.finish());
        });
    });
    let every = Options { frames: true, messages: true, packets: true, rpc_rows: true, ..Options::default() };
    for (name, options) in [("file_to_tables", Options::default()), ("file_to_all_rows", every)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut reader = open(&file);
                let mut pipeline = Pipeline::new(options.clone());
                while let Some(packet) = reader.next_packet() {
                    pipeline.packet(&packet);
                }
                black_box(pipeline.finish());
            });
        });
    }
    group.finish();
}

fn brief() -> Criterion {
    Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_millis(1_500))
}

criterion_group!(name = stages; config = brief(); targets = read_capture, dissect, decode_header_blocks, whole);
criterion_main!(stages);
