//! Captures cut short: no error but the one about the cut, and RPCs that are a prefix of the whole's (invariant 6).
//!
//! Each cut is read anew from its first byte, as a user's file would be. `GRPCDIAG_CUTS=all` cuts each capture after
//! every record and at 200 random bytes (`cargo test --release --test invariants cuts`, some minutes); without it large captures
//! are cut after some of their records and at fewer bytes, `.ci/run --all` three times as often.

use grpcdiag_core::capture_file::{CaptureReader, Damage, Source};
use grpcdiag_core::grpc::status::OK;
use grpcdiag_core::run::pipeline::Pipeline;
use grpcdiag_core::store::budget::Cause;
use grpcdiag_core::store::options::Options;
use grpcdiag_core::store::tables::rpc_flag;
use grpcdiag_core::tls::KeyLog;
use std::collections::HashMap;
use std::io::Cursor;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::support::{Analysis, captures, memory, more_captures, name, repository};

/// Random bytes at which each capture is cut.
const RANDOM: usize = 200;
/// Packets that the cuts of one capture add up to, unless `GRPCDIAG_CUTS` has another number of them.
const AFFORDED: usize = 25_000;
/// The length of a pcap file's header: a shorter file is no capture.
const FILE_HEADER: usize = 24;
/// How pcapng files begin.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// NSS key log, in a Decryption Secrets Block of pcapng.
const NSS_KEY_LOG: u32 = 0x544c_534b;

/// A capture in memory, and the ends of its records: of its header first.
struct Capture {
    name: String,
    data: Arc<[u8]>,
    ends: Vec<usize>,
    /// For pcapng: packets up to each end; in pcap one each.
    packets: Vec<usize>,
    keys: Arc<KeyLog>,
}

/// What a reading gave.
struct Read {
    analysis: Analysis,
    methods: Vec<String>,
    damage: Vec<Damage>,
}

impl Capture {
    fn new(name: String, data: Vec<u8>, keys: &[u8]) -> Self {
        let (ends, packets) = if data.starts_with(&PCAPNG) { blocks(&data) } else { records(&data) };
        let mut keys = KeyLog::parse(keys);
        let mut reader = CaptureReader::open(vec![memory(&name, data.clone())]).unwrap();
        reader.next_packet();
        let secrets = reader.info().secrets.iter().filter(|secrets| secrets.kind == NSS_KEY_LOG);
        secrets.for_each(|secrets| keys.extend(&secrets.data));
        Self { name, data: data.into(), ends, packets, keys: Arc::new(keys) }
    }

    /// Reads the first `length` bytes; `None` when they are no capture.
    fn read(&self, length: usize) -> Option<Read> {
        let shared = Shared(Arc::clone(&self.data), length);
        let source = Source::Reader(self.name.clone(), Box::new(Cursor::new(shared)));
        let mut reader = CaptureReader::open(vec![source]).ok()?;
        let options = Options { rpc_rows: true, ..Options::default() };
        let mut pipeline = Pipeline::with_keys(options, Arc::clone(&self.keys));
        while let Some(packet) = reader.next_packet() {
            pipeline.packet(&packet);
        }
        let (finished, cx, counts) = pipeline.finish();
        let methods = cx.strings.methods.texts();
        Some(Read { analysis: Analysis { finished, cx, counts }, methods, damage: reader.info().damage.clone() })
    }

    /// The number of the last record that ends within the first `length` bytes, the header's 0.
    fn record_at(&self, length: usize) -> usize {
        self.ends.partition_point(|&end| end <= length).saturating_sub(1)
    }
}

/// The first bytes of what several readers share.
struct Shared(Arc<[u8]>, usize);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

fn word(data: &[u8], at: usize) -> usize {
    u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize
}

/// Where the records of a little-endian pcap file end.
fn records(data: &[u8]) -> (Vec<usize>, Vec<usize>) {
    let mut ends = vec![FILE_HEADER];
    let mut at = FILE_HEADER;
    while at + 16 <= data.len() {
        at += 16 + word(data, at + 8);
        if at <= data.len() {
            ends.push(at);
        }
    }
    let packets = (0..ends.len()).collect();
    (ends, packets)
}

/// Where the blocks of a pcapng file end, whose sections may differ in byte order, and the packets up to there.
fn blocks(data: &[u8]) -> (Vec<usize>, Vec<usize>) {
    let (mut ends, mut packets) = (Vec::new(), Vec::new());
    let (mut at, mut count, mut swapped) = (0, 0, false);
    while at + 12 <= data.len() {
        if data[at..].starts_with(&PCAPNG) {
            swapped = data[at + 8] == 0x1a;
        }
        let [kind, length] = [0, 4].map(|field| match word(data, at + field) as u32 {
            word if swapped => word.swap_bytes() as usize,
            word => word as usize,
        });
        if at + length > data.len() {
            break;
        }
        count += usize::from(matches!(kind, 2 | 3 | 6));
        at += length;
        ends.push(at);
        packets.push(count);
    }
    (ends, packets)
}

/// The rows of a reading by connection and stream.
fn rows(read: &Read) -> HashMap<(u32, u32), usize> {
    let rpcs = &read.analysis.cx.rpcs;
    let keys = rpcs.connection.iter().copied().zip(rpcs.stream.iter().copied());
    keys.zip(0..).collect()
}

impl Read {
    /// A row in words.
    fn rpc(&self, row: usize) -> String {
        let (rpcs, sizes) = (&self.analysis.cx.rpcs, &self.analysis.cx.rpc_sizes);
        let times = (rpcs.start_time_ns[row], rpcs.duration_ns[row]);
        let packets = (rpcs.first_packet[row], rpcs.last_packet[row]);
        let request = (sizes.request_messages[row], sizes.request_bytes[row]);
        let response = (sizes.response_messages[row], sizes.response_bytes[row]);
        let state = (rpcs.status[row], rpcs.flags[row]);
        let budget = self.analysis.cx.rpc_budgets[row];
        format!("{:?} {times:?} {packets:?} {request:?} {response:?} {state:?} {budget:?}", self.method(row))
    }

    /// The name of a row's method.
    fn method(&self, row: usize) -> Option<&str> {
        let rpcs = &self.analysis.cx.rpcs;
        let known = rpcs.flags[row] & rpc_flag::METHOD_UNKNOWN == 0;
        self.methods.get(rpcs.method[row] as usize).filter(|_| known).map(String::as_str)
    }
}

/// Whether what a cut capture knows of an RPC is what the whole one tells.
fn is_prefix(now: &Read, row: usize, then: &Read, same: usize) -> bool {
    let (name, expected) = (now.method(row), then.method(same));
    let (now, then) = (&now.analysis, &then.analysis);
    let (rpcs, whole) = (&now.cx.rpcs, &then.cx.rpcs);
    let begins =
        (rpcs.start_time_ns[row], rpcs.first_packet[row]) == (whole.start_time_ns[same], whole.first_packet[same]);
    if !begins || (name.is_some() && name != expected) {
        return false;
    }
    let in_doubt = rpcs.flags[row] & rpc_flag::TOUCHES_GAP != 0 && whole.flags[same] & rpc_flag::TOUCHES_GAP == 0;
    if in_doubt {
        return true; // a hole at the cut that is filled behind it, and flagged
    }
    if rpcs.flags[row] & rpc_flag::COMPLETE == 0 {
        // trailers behind bytes that may still come tell the status, not the end
        return [u8::MAX, whole.status[same]].contains(&rpcs.status[row]);
    }
    let lost_ns = then.cx.rpc_budgets[same].get(Cause::LossRecovery);
    if rpcs.status[row] == OK && whole.status[same] != OK && lost_ns > 0 {
        return true; // its client never received the response, as later packets show
    }
    let (sizes, expected) = (&now.cx.rpc_sizes, &then.cx.rpc_sizes);
    (rpcs.status[row], rpcs.duration_ns[row], rpcs.last_packet[row], now.cx.rpc_budgets[row])
        == (whole.status[same], whole.duration_ns[same], whole.last_packet[same], then.cx.rpc_budgets[same])
        && (sizes.request_messages[row], sizes.request_bytes[row])
            == (expected.request_messages[same], expected.request_bytes[same])
        && (sizes.response_messages[row], sizes.response_bytes[row])
            == (expected.response_messages[same], expected.response_bytes[same])
}

/// A problem that the whole capture does not have, or not as often.
fn new_problem(now: &Analysis, then: &Analysis) -> Option<String> {
    let (found, known) = (&now.cx.problems, &then.cx.problems);
    let count = |kind| known.kinds.iter().zip(&known.counts).find(|(known, _)| *known == kind).map_or(0, |(_, &n)| n);
    let more = found.kinds.iter().zip(&found.counts).find(|&(kind, &n)| n > count(kind));
    more.map(|(kind, n)| format!("{n} x {kind}, not {}", count(kind)))
}

/// What is wrong with the first `length` bytes of a capture.
fn wrong(capture: &Capture, whole: &Read, known: &HashMap<(u32, u32), usize>, length: usize) -> Option<String> {
    let about = format!("{} cut at {length}", capture.name);
    let Some(read) = capture.read(length) else {
        return (length >= capture.ends[0]).then(|| format!("{about}: no capture"));
    };
    let record = capture.record_at(length);
    let (packets, end) =
        if length < capture.ends[0] { (0, 0) } else { (capture.packets[record], capture.ends[record]) };
    let places: Vec<u64> = read.damage.iter().map(|damage| damage.offset).collect();
    let expected = if length == end { vec![] } else { vec![end as u64] };
    if read.analysis.counts.packets != packets as u64 || places != expected {
        let found = read.analysis.counts.packets;
        return Some(format!("{about}: {found} packets, not {packets}, damage not {expected:?} but {:?}", read.damage));
    }
    let (now, then) = (&read.analysis, &whole.analysis);
    for row in 0..now.cx.rpcs.len() {
        let key = (now.cx.rpcs.connection[row], now.cx.rpcs.stream[row]);
        let Some(&same) = known.get(&key) else { return Some(format!("{about}: {key:?} is made up")) };
        if !is_prefix(&read, row, whole, same) {
            let rows = (read.rpc(row), whole.rpc(same));
            return Some(format!("{about}: {rows:?}"));
        }
    }
    // where packets are not recorded in the order of time, what was acknowledged may come further behind
    if let Some(problem) = new_problem(now, then).filter(|_| then.counts.time_steps_back == 0) {
        return Some(format!("{about}: {problem}"));
    }
    let last = &then.cx.rpcs.last_packet;
    let over = (0..last.len()).filter(|&row| 0 < last[row] && last[row] as usize <= packets).count();
    // every row of the cut has one of the whole's, and none has two: those that are over are there if as many are
    let found = now.cx.rpcs.last_packet.iter().filter(|&&packet| packet > 0).count();
    (found < over).then(|| format!("{about}: {} RPCs are lost", over - found))
}

/// All captures that are little-endian and not compressed, the rotated one joined, those of TLS with their keys.
fn all_captures() -> Vec<Capture> {
    let tls = ["slow-start", "warm", "churn"].map(|name| repository(&format!("fixtures/recorded/tls/{name}.pcap")));
    let mut all: Vec<Capture> = captures().into_iter().chain(tls).filter_map(with_keys).collect();
    let rotated = more_captures().map(|folder| [0, 1, 2, 3].map(|n| folder.join(format!("rotated.pcap{n:02}"))));
    if let Some(files) = rotated.filter(|files| files.iter().all(|file| file.exists())) {
        let parts = files.map(|file| std::fs::read(file).unwrap());
        let rest = parts[1..].iter().flat_map(|part| part[FILE_HEADER..].iter().copied());
        all.push(Capture::new("rotated, joined".to_owned(), parts[0].iter().copied().chain(rest).collect(), &[]));
    }
    all
}

fn with_keys(path: PathBuf) -> Option<Capture> {
    let keys = std::fs::read(path.with_extension("keys")).unwrap_or_default();
    let data = std::fs::read(&path).unwrap();
    let plain = matches!(data.first_chunk(), Some(&(PCAPNG | [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1])));
    plain.then(|| Capture::new(name(&path), data, &keys))
}

/// Numbers below `bound`, the same ones every time (splitmix64).
fn random(seed: &str, bound: usize) -> impl Iterator<Item = usize> {
    let mut state = seed.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    })
}

/// Where a capture is cut: the ends of records, and any bytes.
fn cuts(capture: &Capture, all: bool) -> [Vec<usize>; 2] {
    let records = capture.ends.len();
    let asked = std::env::var("GRPCDIAG_CUTS").ok().and_then(|value| value.parse().ok());
    let afforded = asked.unwrap_or(AFFORDED);
    let step = if all { 1 } else { (records * records / 2 / afforded).max(1) };
    let count = if all { RANDOM } else { (2 * afforded / records).clamp(3, RANDOM) };
    let bytes = random(&capture.name, capture.data.len()).take(count);
    let begin = 0..(FILE_HEADER + 20).min(capture.data.len());
    [
        capture.ends.iter().copied().step_by(step).collect(),
        begin.step_by(if all { 1 } else { 5 }).chain(bytes).collect(),
    ]
}

#[test]
fn a_cut_gives_a_prefix_and_is_told() {
    let all = std::env::var("GRPCDIAG_CUTS").is_ok_and(|value| value == "all");
    let captures = all_captures();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done) = (AtomicUsize::new(0), Mutex::new((0, 0, Vec::new())));
    let work = || {
        while let Some(capture) = captures.get(next.fetch_add(1, Ordering::Relaxed)) {
            let started = std::time::Instant::now();
            let whole = capture.read(capture.data.len()).unwrap();
            let known = rows(&whole);
            let [records, bytes] = cuts(capture, all);
            let found: Vec<String> =
                records.iter().chain(&bytes).filter_map(|&length| wrong(capture, &whole, &known, length)).collect();
            if all {
                let took = started.elapsed().as_secs();
                eprintln!(
                    "{}: {} records, {} bytes, {} wrong, {took} s",
                    capture.name,
                    records.len(),
                    bytes.len(),
                    found.len()
                );
            }
            let mut done = done.lock().unwrap();
            done.0 += records.len();
            done.1 += bytes.len();
            done.2.extend(found.into_iter().take(5));
        }
    };
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let (records, bytes, wrong) = done.into_inner().unwrap();
    eprintln!("{} captures cut after {records} records and at {bytes} other bytes", captures.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn cuts_reach_every_record_of_what_is_small() {
    let path = repository("fixtures/recorded/too-many-pings.pcap");
    let capture = with_keys(path).unwrap();
    let whole = capture.read(capture.data.len()).unwrap();
    assert_eq!(capture.packets.last(), Some(&(whole.analysis.counts.packets as usize)));
    assert_eq!(cuts(&capture, false)[0], capture.ends);
    assert!(!rows(&whole).is_empty());
}
