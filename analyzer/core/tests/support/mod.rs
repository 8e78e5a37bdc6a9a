//! What the integration tests share: captures on disk, whole analyses, and the checks that hold for all of them.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod conversation;

use grpcdiag_core::capture_file::{CaptureReader, Packet, Source};
use grpcdiag_core::run::pipeline::{CaptureCounts, Finished, Pipeline};
use grpcdiag_core::store::budget::Budget;
use grpcdiag_core::store::context::Context;
use grpcdiag_core::store::methods::nearest_rank;
use grpcdiag_core::store::options::Options;
use grpcdiag_core::store::tables::{NO_CONNECTION, rpc_flag};
use std::path::{Path, PathBuf};

/// A packet that outlives its file.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub time_ns: i64,
    pub link_type: u32,
    pub original_len: u32,
    pub captured: Vec<u8>,
}

impl Recorded {
    pub fn numbered(&self, number: u32) -> Packet<'_> {
        Packet {
            number,
            time_ns: self.time_ns,
            link_type: self.link_type,
            interface: 0,
            captured: &self.captured,
            original_len: self.original_len,
        }
    }
}

/// The tables of one capture.
pub struct Analysis {
    pub finished: Finished,
    pub cx: Context,
    pub counts: CaptureCounts,
}

/// An RPC's row; everything but its place in the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rpc {
    pub connection: u32,
    pub stream: u32,
    pub method: Option<String>,
    pub status: u8,
    pub flags: u8,
    pub times: (i64, i64),
    pub packets: (u32, u32),
    pub request: (u32, u64),
    pub response: (u32, u64),
}

impl Rpc {
    pub fn is_complete(&self) -> bool {
        self.flags & rpc_flag::COMPLETE != 0
    }

    pub fn touches_gap(&self) -> bool {
        self.flags & rpc_flag::TOUCHES_GAP != 0
    }
}

/// All rows of all tables are kept.
pub fn all_tables() -> Options {
    Options { frames: true, messages: true, packets: true, rpc_rows: true, file_times: true, ..Options::default() }
}

/// The packets of a capture of one or several sources.
pub fn packets(sources: Vec<Source>) -> Vec<Recorded> {
    let mut reader = CaptureReader::open(sources).unwrap_or_else(|error| panic!("{error}"));
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        packets.push(Recorded {
            time_ns: packet.time_ns,
            link_type: packet.link_type,
            original_len: packet.original_len,
            captured: packet.captured.to_vec(),
        });
    }
    packets
}

pub fn packets_of(path: &Path) -> Vec<Recorded> {
    packets(vec![Source::Path(path.to_owned())])
}

/// Analyses packets, numbered from 1.
pub fn analyse(packets: &[Recorded], options: Options) -> Analysis {
    let mut pipeline = Pipeline::new(options);
    for (number, packet) in (1..).zip(packets) {
        pipeline.packet(&packet.numbered(number));
    }
    let (finished, cx, counts) = pipeline.finish();
    Analysis { finished, cx, counts }
}

/// Messages and bytes of an RPC, zeros when they were not wanted.
fn sizes_of(messages: &[u32], bytes: &[u64], row: usize) -> (u32, u64) {
    (messages.get(row).copied().unwrap_or(0), bytes.get(row).copied().unwrap_or(0))
}

impl Analysis {
    /// Every row that refers to a connection refers to one that there is.
    pub fn check_connections(&mut self) -> Result<(), String> {
        let known = self.finished.connections.len() as u32;
        let mut cells = self.cx.connection_columns().flatten();
        match cells.find(|connection| **connection >= known && **connection != NO_CONNECTION) {
            Some(connection) => Err(format!("a row of connection {connection}, of {known}")),
            None => Ok(()),
        }
    }

    pub fn rpcs(&self) -> Vec<Rpc> {
        let (table, sizes) = (&self.cx.rpcs, &self.cx.rpc_sizes);
        let methods = self.cx.strings.methods.texts();
        let rpc = |row: usize| Rpc {
            connection: table.connection[row],
            stream: table.stream[row],
            method: methods
                .get(table.method[row] as usize)
                .filter(|_| table.flags[row] & grpcdiag_core::store::tables::rpc_flag::METHOD_UNKNOWN == 0)
                .cloned(),
            status: table.status[row],
            flags: table.flags[row],
            times: (table.start_time_ns[row], table.duration_ns[row]),
            packets: (table.first_packet[row], table.last_packet[row]),
            request: sizes_of(&sizes.request_messages, &sizes.request_bytes, row),
            response: sizes_of(&sizes.response_messages, &sizes.response_bytes, row),
        };
        (0..table.len()).map(rpc).collect()
    }

    /// Invariant 1: every captured TCP payload byte is accounted for.
    pub fn check_bytes(&self) -> Result<(), String> {
        let table = &self.finished.connections;
        for row in 0..table.len() {
            let parts = [
                table.decoded_bytes[row],
                table.retransmitted_bytes[row],
                table.not_http2_bytes[row],
                table.encrypted_bytes[row],
                table.undecoded_bytes[row],
                table.undelivered_bytes[row],
            ];
            if parts.iter().sum::<u64>() != table.payload_bytes[row] {
                return Err(format!("connection {row}: {parts:?} of {} payload bytes", table.payload_bytes[row]));
            }
        }
        Ok(())
    }

    /// Invariants 2 and 7: every RPC's causes add up to its duration, the sums of sums agree, and nothing is negative.
    pub fn check_durations(&self) -> Result<(), String> {
        let (cx, rpcs) = (&self.cx, &self.cx.rpcs);
        for (row, (budget, &duration)) in cx.rpc_budgets.iter().zip(&rpcs.duration_ns).enumerate() {
            if duration < 0 || budget.total() != duration.unsigned_abs() {
                return Err(format!("RPC {row}: {budget:?} is not {duration}"));
            }
        }
        if cx.waits.duration_ns.iter().any(|&ns| ns < 0) {
            return Err("a negative wait".to_owned());
        }
        // sums wrap after 584 years, as the budgets' do: only absurd times get there
        let sum = |times: &mut dyn Iterator<Item = u64>| times.fold(0, u64::wrapping_add);
        let total = sum(&mut rpcs.duration_ns.iter().map(|&ns| ns.unsigned_abs()));
        let of = |budgets: &mut dyn Iterator<Item = Budget>| sum(&mut budgets.map(|budget| budget.total()));
        let connections = of(&mut self.finished.budgets.iter().copied());
        let methods = of(&mut cx.methods.iter().flatten().map(|method| method.budget));
        if (connections, methods) != (total, total) {
            return Err(format!("RPCs last {total}, connections {connections}, methods {methods}"));
        }
        Ok(())
    }

    /// Invariant 3: every frame and message has the packet and time of its first and of its last byte.
    pub fn check_both_ends(&self, packets: &[Recorded]) -> Result<(), String> {
        let (frames, messages) = (&self.cx.frames, &self.cx.messages);
        let tables = [
            ("frame", &frames.first_packet, &frames.first_time_ns, &frames.last_packet, &frames.last_time_ns),
            ("message", &messages.first_packet, &messages.first_time_ns, &messages.last_packet, &messages.last_time_ns),
        ];
        for (table, first, first_time, last, last_time) in tables {
            for row in 0..first.len() {
                let time = |packet: u32| packets.get((packet as usize).wrapping_sub(1)).map(|packet| packet.time_ns);
                let right = first[row] <= last[row]
                    && time(first[row]) == Some(first_time[row])
                    && time(last[row]).is_some_and(|time| last_time[row] >= time)
                    && (self.counts.time_steps_back > 0 || first_time[row] <= last_time[row]);
                if !right {
                    let times = (first_time[row], last_time[row]);
                    return Err(format!("{table} {row}: packets {} to {}, times {times:?}", first[row], last[row]));
                }
            }
        }
        Ok(())
    }
}

/// A folder of this repository, which has this crate and those that share this file.
pub fn repository(path: &str) -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find(|folder| folder.join("fixtures/recorded").is_dir()).expect("the repository's fixtures").join(path)
}

/// The folder with captures too large for the repository: `GRPCDIAG_CAPTURES`, or the one beside it, if there is one.
pub fn more_captures() -> Option<PathBuf> {
    let folder = match std::env::var_os("GRPCDIAG_CAPTURES") {
        Some(named) => PathBuf::from(named),
        None => repository("../shared/captures"),
    };
    folder.is_dir().then_some(folder)
}

/// All captures there are, each name once.
pub fn captures() -> Vec<PathBuf> {
    let shipped = [repository("fixtures/recorded"), repository("fixtures/synthetic/captures")];
    let more = more_captures();
    if more.is_none() {
        eprintln!("skipped: the large captures; name their folder in GRPCDIAG_CAPTURES");
    }
    let mut captures: Vec<PathBuf> = shipped.into_iter().flat_map(|folder| captures_in(&folder)).collect();
    assert!(captures.len() > 50, "only {} captures in the repository's fixtures", captures.len());
    for path in more.iter().flat_map(|folder| captures_in(folder)) {
        let known = repository("fixtures/recorded").join(path.file_name().unwrap_or_default());
        if !known.exists() {
            captures.push(path);
        }
    }
    captures
}

fn captures_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext.to_string_lossy().starts_with("pcap")));
    paths.sort();
    paths
}

pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A pcap file with nanoseconds.
pub fn pcap(packets: &[Recorded]) -> Vec<u8> {
    let link_type = packets.first().map_or(1, |packet| packet.link_type);
    let mut bytes = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, link_type] {
        bytes.extend(word.to_le_bytes());
    }
    for packet in packets {
        assert_eq!(packet.link_type, link_type, "a pcap file has one link type");
        let (seconds, nanoseconds) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
        let words = [seconds, nanoseconds, packet.captured.len() as i64, i64::from(packet.original_len)];
        for word in words {
            bytes.extend(u32::try_from(word).unwrap().to_le_bytes());
        }
        bytes.extend(&packet.captured);
    }
    bytes
}

/// A source that reads from memory.
pub fn memory(name: &str, bytes: Vec<u8>) -> Source {
    Source::Reader(name.to_owned(), Box::new(std::io::Cursor::new(bytes)))
}

/// Everything the tables hold, in their order: a line per column or row.
pub fn everything(mut analysis: Analysis) -> Vec<String> {
    let mut lines = vec![format!("{:?} {:?}", analysis.finished.addresses, analysis.finished.budgets)];
    lines.extend(analysis.finished.connections.take_columns().iter().map(|column| format!("{column:?}")));
    lines.push(format!("{:?}", analysis.cx.totals));
    lines.extend(methods(&mut analysis));
    lines.extend(analysis.rpcs().iter().map(|rpc| format!("{rpc:?}")));
    let finished = &mut analysis.finished;
    let of_connections = [
        finished.directions.take_columns(),
        finished.turns.take_columns(),
        finished.setups.take_columns(),
        finished.lookups.take_columns(),
        finished.lookup_addresses.take_columns(),
        finished.icmp_errors.take_columns(),
    ];
    lines.push(format!("{:?}", finished.lookup_names));
    let cx = &mut analysis.cx;
    let tables = [
        cx.messages.take_columns(),
        cx.frames.take_columns(),
        cx.acts.take_columns(),
        cx.waits.take_columns(),
        cx.record_waits.take_columns(),
        cx.records.take_columns(),
        cx.idles.take_columns(),
        cx.stalls.take_columns(),
        cx.unanswered.take_columns(),
        cx.undelivered.take_columns(),
        cx.closings.take_columns(),
        cx.open_rpcs.take_columns(),
        cx.pings.take_columns(),
        cx.goaways.take_columns(),
        cx.delays.take_columns(),
        cx.other_requests.take_columns(),
        cx.queues.take_columns(),
        cx.failures.take_columns(),
        cx.repeats.take_columns(),
        cx.connection_methods.take_columns(),
        cx.problems.rows.take_columns(),
    ];
    lines.extend(of_connections.iter().chain(&tables).flatten().map(|(column, cells)| format!("{column} {cells:?}")));
    lines.push(format!("{:?} {:?}", cx.goaway_reasons, cx.deadlines));
    lines.push(format!("{:?} {:?} {:?}", cx.problems.kinds, cx.problems.counts, cx.failure_budgets));
    lines
}

/// What is counted per method, in the order of their numbers.
fn methods(analysis: &mut Analysis) -> Vec<String> {
    let names = analysis.cx.strings.methods.texts();
    let mut lines = Vec::new();
    for (index, stats) in analysis.cx.methods.iter_mut().enumerate() {
        let Some(stats) = stats else { continue };
        let name = index.checked_sub(1).and_then(|method| names.get(method));
        let ranks = [0.0, 0.01, 0.3, 0.5, 0.9].map(|share| nearest_rank(share, stats.durations.len() as u64) as usize);
        let latency = (stats.durations.at_ranks(&ranks), stats.durations.longest());
        let counts = (stats.rpcs, stats.complete, stats.touch_gaps, stats.statuses, stats.messages);
        let times = (stats.first_start, stats.last_end, stats.durations.sum(), stats.turnaround_sum, stats.budget);
        lines.push(format!("{name:?} {counts:?} {latency:?} {times:?}"));
    }
    lines
}

/// The first line in which two analyses differ.
pub fn difference(found: Analysis, expected: Analysis) -> Option<String> {
    difference_of_lines(&everything(found), &everything(expected))
}

/// The same for analyses as `everything` writes them: for one that several others are held against.
pub fn difference_of_lines(found: &[String], expected: &[String]) -> Option<String> {
    let differ = found.iter().zip(expected).find(|(found, expected)| found != expected);
    match differ {
        Some((found, expected)) => Some(format!("{found}\nis not\n{expected}")),
        None if found.len() != expected.len() => Some(format!("{} lines, not {}", found.len(), expected.len())),
        None => None,
    }
}
