//! A run that is cut finds what a run over the whole capture finds.

use std::path::PathBuf;
use std::sync::Arc;

use grpcdiag_core::run::interval::{Interval, join_intervals};
use grpcdiag_core::run::pipeline::Pipeline;
use grpcdiag_core::run::saved::Saved;
use grpcdiag_core::store::options::Options;

use crate::support::{self, Analysis, Recorded, Rpc, analyse, everything, name, packets_of};

fn options() -> Options {
    Options { rpc_rows: true, ..Options::default() }
}

/// The captures in which no response counts as OK in one interval that its client never received, as a later interval shows.
fn captures() -> Vec<PathBuf> {
    let mut captures = support::captures();
    captures.retain(|path| !name(path).starts_with("mtu-black-hole"));
    captures
}

/// The intervals of a run that is cut behind some numbers of packets, each up to a time, and at its end.
fn intervals(packets: &[Recorded], cuts: &[(usize, i64)]) -> Vec<Interval> {
    let mut pipeline = Pipeline::live(options(), Arc::default());
    let mut intervals = Vec::new();
    for (number, packet) in (1..).zip(packets) {
        pipeline.packet(&packet.numbered(number));
        let here = cuts.iter().filter(|(behind, _)| *behind == number as usize);
        intervals.extend(here.map(|&(_, end)| pipeline.cut(end)));
    }
    intervals.push(pipeline.cut_last(0));
    intervals
}

/// Cuts behind equal shares of the packets.
fn cut_evenly(packets: &[Recorded], parts: usize) -> Vec<(usize, i64)> {
    (1..parts).map(|part| (packets.len() * part / parts, i64::MIN)).collect()
}

/// Two cuts in each of the longest silences, in its middle and at its end: in between most connections are quiet.
fn cut_in_silences(packets: &[Recorded]) -> Vec<(usize, i64)> {
    let length = |&number: &usize| packets[number].time_ns.saturating_sub(packets[number - 1].time_ns);
    let mut silences: Vec<usize> = (1..packets.len()).filter(|number| length(number) >= 1_000).collect();
    silences.sort_by_key(|number| -length(number));
    silences.truncate(5);
    let ends = |number: usize| {
        let (from, to) = (packets[number - 1].time_ns, packets[number].time_ns);
        [(number, from + (to - from) / 2), (number, to - 1)]
    };
    silences.into_iter().flat_map(ends).collect()
}

/// The packets behind another connection that was closed just before, and one that stays open and silent.
fn behind_silent_connections(packets: &[Recorded]) -> Vec<Recorded> {
    let first = packets.first().map_or(0, |packet| packet.time_ns);
    let packet = |(nth, (port, flags, seq, ack, payload)): (usize, (u16, u8, u32, u32, &[u8]))| {
        let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let is_client = flags & 0x80 == 0;
        let (from, to) = if is_client { (client, server) } else { (server, client) };
        let ports = if is_client { [port, 9] } else { [9, port] };
        let mut bytes = vec![0x45, 0];
        bytes.extend((40 + payload.len() as u16).to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        bytes.extend([from, to].concat());
        bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        bytes.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        bytes.extend([0x50, flags & 0x3f, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(payload);
        let time_ns = first - 1_000_000 + nth as i64 * 10_000;
        Recorded { time_ns, link_type: 101, original_len: bytes.len() as u32, captured: bytes }
    };
    let settings = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    let sent = [
        (1, 2, 10, 0, &[][..]),
        (1, 0x94, 20, 11, &[]), // refused
        (2, 2, 10, 0, &[]),
        (2, 0x92, 20, 11, &[]),
        (2, 0x10, 11, 21, &[]),
        (2, 0x18, 11, 21, &settings),
        (2, 0x90, 21, 11 + settings.len() as u32, &[]),
    ];
    sent.into_iter().enumerate().map(packet).chain(packets.iter().cloned()).collect()
}

/// The same by runs that each go on with what the one before saved.
fn saved_intervals(packets: &[Recorded], cuts: &[(usize, i64)]) -> Vec<Interval> {
    let mut pipeline = Pipeline::resumable(options(), Arc::default());
    let mut intervals = Vec::new();
    for (number, packet) in (1..).zip(packets) {
        pipeline.packet(&packet.numbered(number));
        for &(_, end) in cuts.iter().filter(|(behind, _)| *behind == number as usize) {
            intervals.push(pipeline.cut(end));
            let saved = pipeline.save().unwrap();
            pipeline = Pipeline::resume(options(), Arc::default(), Saved::parse(&saved).unwrap());
        }
    }
    intervals.push(pipeline.cut_last(0));
    intervals
}

fn join(intervals: &[Interval]) -> Analysis {
    let (finished, cx, counts) = join_intervals(intervals.iter()).unwrap();
    Analysis { finished, cx, counts }
}

#[test]
fn one_piece_is_the_capture() {
    for path in captures() {
        let packets = packets_of(&path);
        let (found, expected) = (comparable(join(&intervals(&packets, &[]))), comparable(analyse(&packets, options())));
        assert_eq!(found, expected, "{}", name(&path));
    }
}

/// Gives equal names equal numbers in every run; methods without a name are one.
fn number_by_name(numbers: &mut [u32], names: &[String]) {
    for number in numbers {
        if let Some(name) = names.get(*number as usize) {
            let known = name.bytes().take_while(|_| !name.starts_with('\0'));
            *number = known.fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        }
    }
}

/// Columns of what a cut divides: the densest second and the intervals of an interval, and stays at a limit.
/// Answers to calls that waited in a silence count up to the cut behind it.
const DIVIDED: [&str; 8] = [
    "dense_",
    "busy_intervals ",
    "at_limit_times ",
    "interval_ns ",
    "interval_spread_ns ",
    "unanswered ",
    "answers_ns ",
    "durations_ns ",
];

/// What is the same however a run is cut. Pieces have the first PINGs each, rows of RPCs that were open stand behind others,
/// names have other numbers, and methods without a name are told apart by their connections' numbers.
fn comparable(mut analysis: Analysis) -> Vec<String> {
    analysis.cx.pings = Default::default();
    let agents = analysis.cx.strings.agents.texts();
    number_by_name(&mut analysis.finished.connections.client_agent, &agents);
    number_by_name(&mut analysis.finished.connections.server_agent, &agents);
    number_by_name(&mut analysis.cx.failures.answered_by, &agents);
    let methods = analysis.cx.strings.methods.texts();
    analysis.cx.method_columns().for_each(|column| number_by_name(column, &methods));
    let used = &mut analysis.cx.connection_methods;
    let mut pairs: Vec<(u32, u32)> = used.connection.iter().copied().zip(used.method.iter().copied()).collect();
    pairs.sort_unstable();
    (used.connection, used.method) = pairs.into_iter().unzip();
    let mut order: Vec<u32> = (0..analysis.cx.rpcs.len() as u32).collect();
    order.sort_by_key(|&row| {
        let (rpcs, row) = (&analysis.cx.rpcs, row as usize);
        (rpcs.first_packet[row], rpcs.stream[row])
    });
    for rpc in &mut analysis.cx.failures.rpc {
        *rpc = order.iter().position(|row| row == rpc).map_or(u32::MAX, |place| place as u32);
    }
    if !analysis.cx.deadlines.is_empty() {
        let deadline = |row: &u32| analysis.cx.deadlines.get(*row as usize).copied().unwrap_or(-1);
        analysis.cx.deadlines = order.iter().map(deadline).collect();
    }
    analysis.cx.rpcs.arrange(&order);
    analysis.cx.rpc_sizes.arrange(&order);
    let named = |line: String| {
        line.split_once("\") (")
            .filter(|(name, _)| name.starts_with("Some(\"\\0"))
            .map_or(line.clone(), |(_, rest)| rest.to_owned())
    };
    let is_divided = |line: &String| DIVIDED.iter().any(|column| line.starts_with(column));
    everything(analysis).into_iter().filter(|line| !is_divided(line)).map(named).collect()
}

#[test]
fn pieces_joined_are_the_capture() {
    let mut wrong = Vec::new();
    for path in captures() {
        let packets = behind_silent_connections(&packets_of(&path));
        let expected = comparable(analyse(&packets, options()));
        for (how, cuts) in [("evenly", cut_evenly(&packets, 7)), ("in silences", cut_in_silences(&packets))] {
            let intervals = intervals(&packets, &cuts);
            let each = intervals.iter().map(|interval| join(std::slice::from_ref(interval)).check_connections());
            let each: Result<(), String> = each.collect();
            let mut joined = join(&intervals);
            let checked = joined.check_bytes().and_then(|()| joined.check_durations()).and(each);
            let checked = checked.and_then(|()| joined.check_connections());
            let found = comparable(joined);
            let differs = found.iter().zip(&expected).filter(|(found, expected)| found != expected);
            let differs = differs.map(|(found, expected)| format!("{found}\nis not\n{expected}"));
            wrong.extend(
                checked.err().into_iter().chain(differs).map(|text| format!("{}, cut {how}: {text}", name(&path))),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A run that goes on with what another saved finds what that would have found. TLS and IP fragments are not saved.
#[test]
fn saved_runs_go_on() {
    let mut wrong = Vec::new();
    for path in captures() {
        let packets = packets_of(&path);
        let cuts = cut_evenly(&packets, 7);
        let expected = join(&intervals(&packets, &cuts));
        if expected.counts.fragments == 0 && expected.finished.connections.tls.iter().all(|&is_tls| is_tls == 0) {
            let found = comparable(join(&saved_intervals(&packets, &cuts)));
            let differs = found.into_iter().zip(comparable(expected)).find(|(found, expected)| found != expected);
            wrong.extend(differs.map(|(found, expected)| format!("{}: {found}\nis not\n{expected}", name(&path))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is saved may be damaged: it is refused.
#[test]
fn damaged_states_are_refused() {
    for path in captures().iter().take(12) {
        let packets = packets_of(path);
        let half = packets.len() / 2;
        let mut pipeline = Pipeline::resumable(options(), Arc::default());
        (1..).zip(&packets[..half]).for_each(|(number, packet)| pipeline.packet(&packet.numbered(number)));
        pipeline.cut(i64::MIN);
        let saved = pipeline.save().unwrap();
        assert!(Saved::parse(&saved[..saved.len() / 2]).is_err());
        for nth in 0..40 {
            let mut damaged = saved.clone();
            let at = (nth * 7919) % damaged.len();
            damaged[at] ^= 1 << (nth % 8);
            assert!(Saved::parse(&damaged).is_err(), "bit {} of octet {at}", nth % 8);
        }
    }
}

/// Each RPC is complete in one interval, with the row that it has in the whole capture, and open in those before.
#[test]
fn rows_of_pieces_are_those_of_the_capture() {
    let key = |analysis: &Analysis, rpc: &Rpc| {
        let row = rpc.connection as usize;
        (analysis.finished.connections.client_port[row], rpc.times.0, rpc.packets.0, rpc.stream)
    };
    for path in captures() {
        let packets = packets_of(&path);
        let cuts = cut_evenly(&packets, 5);
        let whole = analyse(&packets, options());
        let mut expected: Vec<_> = whole
            .rpcs()
            .iter()
            .filter(|rpc| rpc.is_complete())
            .map(|rpc| (key(&whole, rpc), rpc.times.1, rpc.status))
            .collect();
        let mut found = Vec::new();
        for interval in &intervals(&packets, &cuts) {
            let one = join(std::slice::from_ref(interval));
            found.extend(
                one.rpcs().iter().filter(|rpc| rpc.is_complete()).map(|rpc| (key(&one, rpc), rpc.times.1, rpc.status)),
            );
            assert_eq!(one.check_durations(), Ok(()), "{}", name(&path));
        }
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{}", name(&path));
    }
}
