//! Throughput of each stage on a recorded capture: 3,000 unary calls of grpc-c++ on one connection, and as many copies of
//! it with other ports where connections are divided among threads; TLS on calls of grpc-go.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use flate2::write::GzEncoder;
use grpcdiag_core::at::At;
use grpcdiag_core::capture_file::{CaptureReader, Packet, Source};
use grpcdiag_core::grpc::connection::Http2;
use grpcdiag_core::http2::connection::detect::PREFACE;
use grpcdiag_core::http2::connection::http2::End;
use grpcdiag_core::http2::connection::reading::Reading;
use grpcdiag_core::http2::frame::header::{FrameHeader, FrameType, HEADER_LEN};
use grpcdiag_core::http2::frame::headers;
use grpcdiag_core::http2::hpack::Decoder;
use grpcdiag_core::packet::{Dissector, Outcome};
use grpcdiag_core::run::pipeline::Pipeline;
use grpcdiag_core::run::router::Router;
use grpcdiag_core::run::shard::Shard;
use grpcdiag_core::store::context::Context;
use grpcdiag_core::store::options::Options;
use grpcdiag_core::store::strings::Strings;
use grpcdiag_core::tcp::transport::Transport;
use grpcdiag_core::tls::{Decryptor, Event, KeyLog, Session};
use std::hint::black_box;
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const CAPTURE: &str = "ydb-unary-single-inflight1.pcap";
const ENCRYPTED: (&str, &str) = ("tls13-go.pcap", "tls13-go.keys");
/// Copies of the capture that two threads share.
const COPIES: u8 = 8;

/// A packet without its bytes, which are in the capture's.
type Recorded = (u32, i64, u32, u32, Vec<u8>);

fn recorded(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/recorded").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn file() -> Arc<[u8]> {
    recorded(CAPTURE).into()
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

/// A side's bytes as TCP delivers them, which come in order in these captures: the side, and where they were recorded.
type Delivered<'a> = (usize, &'a [u8], At);

fn delivered(packets: &[Recorded]) -> Vec<Delivered<'_>> {
    let mut dissector = Dissector::new();
    let mut bytes = Vec::new();
    for (number, time, link_type, length, captured) in packets {
        if let Outcome::Tcp(segment) = dissector.dissect(*link_type, captured, *length, *time)
            && !segment.payload.is_empty()
        {
            let start = segment.payload.as_ptr() as usize - captured.as_ptr() as usize;
            let payload = &captured[start..start + segment.payload.len()];
            let side = usize::from(segment.source_port < segment.destination_port);
            bytes.push((side, payload, At::new(*number, *time)));
        }
    }
    bytes
}

fn length_of(bytes: &[Delivered<'_>]) -> Throughput {
    Throughput::Bytes(bytes.iter().map(|(_, bytes, _)| bytes.len() as u64).sum())
}

/// The packets again and again, with the last octet but one of both addresses changed: connections that take turns.
fn copies(packets: &[Recorded]) -> Vec<Recorded> {
    const IPV4_IN_ETHERNET: usize = 14;
    let mut all = Vec::new();
    for (_, time, link_type, length, captured) in packets {
        for copy in 0..COPIES {
            let mut captured = captured.clone();
            if captured.get(IPV4_IN_ETHERNET).is_some_and(|first| first >> 4 == 4) {
                captured[IPV4_IN_ETHERNET + 14] = copy;
                captured[IPV4_IN_ETHERNET + 18] = copy;
            }
            all.push((all.len() as u32 + 1, *time, *link_type, *length, captured));
        }
    }
    all
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

fn decompress(criterion: &mut Criterion) {
    let plain = file();
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&plain).expect("gzip");
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&plain).expect("lz4");
    let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let mut group = criterion.benchmark_group("decompression");
    group.throughput(Throughput::Bytes(plain.len() as u64)); // of the packets, not of the file
    for (name, packed) in [("gzip", gzip.finish().expect("gzip")), ("lz4", lz4.finish().expect("lz4")), ("zstd", zstd)]
    {
        let packed: Arc<[u8]> = packed.into();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut reader = open(&packed);
                while let Some(packet) = reader.next_packet() {
                    black_box(packet);
                }
            });
        });
    }
    group.finish();
}

/// Connections found, and their segments followed with everything above; less the stages below it is what TCP costs.
fn follow(criterion: &mut Criterion) {
    let packets = packets(&file());
    let mut group = criterion.benchmark_group("tcp");
    group.throughput(Throughput::Elements(packets.len() as u64));
    for (name, deep) in [("dissect_and_route", false), ("dissect_route_and_follow", true)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let (mut dissector, mut router) = (Dissector::new(), Router::new(&[1]));
                let mut shard = Shard::new(Options::default());
                for (number, time, link_type, length, captured) in &packets {
                    if let Outcome::Tcp(segment) = dissector.dissect(*link_type, captured, *length, *time)
                        && let Some(route) = black_box(router.route(&segment))
                        && deep
                    {
                        shard.segment(&route, &segment, At::new(*number, *time));
                    }
                }
                black_box(shard);
            });
        });
    }
    group.finish();
}

/// Frames, header blocks, messages and RPCs of bytes that came in order: HTTP/2 and gRPC without TCP.
fn feed(criterion: &mut Criterion) {
    let packets = packets(&file());
    let bytes = delivered(&packets);
    let mut group = criterion.benchmark_group("http2");
    group.throughput(length_of(&bytes));
    group.bench_function("frame_headers", |bencher| {
        let client: Vec<u8> = bytes.iter().filter(|(side, ..)| *side == 0).flat_map(|(_, b, _)| b.to_vec()).collect();
        let frames = client.strip_prefix(PREFACE).expect("the client's preface");
        bencher.iter(|| {
            let mut rest = frames;
            while let Some((head, after)) = rest.split_first_chunk::<HEADER_LEN>() {
                let header = FrameHeader::parse(black_box(head));
                rest = after.get(header.length() as usize..).unwrap_or_default();
                black_box(header.kind());
            }
        });
    });
    for (name, rpc_rows) in [("frames_to_rpcs", false), ("frames_to_rpc_rows", true)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut cx = Context::new(Options { rpc_rows, ..Options::default() });
                let mut http2 = Http2::new(0, 0, true, false, &Decoder::new(&mut cx.strings));
                let reading = &mut Reading { cx: &mut cx, transport: &Transport::default() };
                for &(side, bytes, at) in &bytes {
                    http2.feed(side, bytes, at, reading, &mut ());
                }
                http2.finish(End::CaptureEnds, At::new(u32::MAX, i64::MAX), reading);
                assert!(http2.application.rpcs > 0);
                black_box(cx);
            });
        });
    }
    group.finish();
}

/// TLS records of bytes that came in order, decrypted and not.
fn decrypt(criterion: &mut Criterion) {
    let packets = packets(&recorded(ENCRYPTED.0).into());
    let bytes = delivered(&packets);
    let mut group = criterion.benchmark_group("tls");
    group.throughput(length_of(&bytes));
    for (name, keys) in [("decrypted", recorded(ENCRYPTED.1)), ("records_alone", Vec::new())] {
        let keys = Arc::new(KeyLog::parse(&keys));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let (mut decryptor, mut session) = (Decryptor::new(Arc::clone(&keys)), Session::new());
                let mut out = |event: Event<'_, At>, _: At| {
                    black_box(event);
                };
                for &(side, bytes, at) in &bytes {
                    session.feed(side, bytes, at, &mut decryptor, &mut out);
                }
                session.finish(At::new(u32::MAX, i64::MAX), &mut decryptor, &mut out);
            });
        });
    }
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
    let many = copies(&packets);
    let mut group = criterion.benchmark_group("pipeline_of_many_connections");
    group.throughput(Throughput::Elements(many.len() as u64));
    for threads in [1, 2] {
        group.bench_with_input(BenchmarkId::new("threads", threads), &threads, |bencher, &threads| {
            bencher.iter(|| {
                let mut pipeline = Pipeline::new(Options { threads, ..Options::default() });
                many.iter().for_each(|recorded| pipeline.packet(&packet(recorded)));
                black_box(pipeline.finish());
            });
        });
    }
    group.finish();
}

fn brief() -> Criterion {
    Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_millis(1_500))
}

criterion_group!(name = stages; config = brief(); targets = read_capture, decompress, dissect, follow, decrypt, decode_header_blocks, feed, whole);
criterion_main!(stages);
