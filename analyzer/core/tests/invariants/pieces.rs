//! A run that is cut finds what a run over the whole capture finds.

use std::sync::Arc;

use grpcdiag_core::run::piece::{Piece, join_pieces};
use grpcdiag_core::run::pipeline::Pipeline;
use grpcdiag_core::store::context::Options;

use crate::support::{Analysis, Recorded, Rpc, analyse, captures, difference, everything, name, packets_of};

fn options() -> Options {
    Options { rpc_rows: true, ..Options::default() }
}

/// The pieces of a run that is cut behind some numbers of packets, and at its end.
fn pieces(packets: &[Recorded], cuts: &[usize]) -> Vec<Piece> {
    let mut pipeline = Pipeline::live(options(), Arc::default());
    let mut pieces = Vec::new();
    for (number, packet) in (1..).zip(packets) {
        pipeline.packet(&packet.numbered(number));
        if cuts.contains(&(number as usize)) {
            pieces.push(pipeline.cut(i64::MIN));
        }
    }
    pieces.push(pipeline.cut_last(0));
    pieces
}

/// The same by runs that each go on with what the one before saved.
fn saved_pieces(packets: &[Recorded], cuts: &[usize]) -> Vec<Piece> {
    let mut pipeline = Pipeline::resumable(options(), Arc::default());
    let mut pieces = Vec::new();
    for (number, packet) in (1..).zip(packets) {
        pipeline.packet(&packet.numbered(number));
        if cuts.contains(&(number as usize)) {
            pieces.push(pipeline.cut(i64::MIN));
            let saved = pipeline.save().unwrap();
            pipeline = Pipeline::resume(options(), Arc::default(), &saved).unwrap();
        }
    }
    pieces.push(pipeline.cut_last(0));
    pieces
}

fn join(pieces: &[Piece]) -> Analysis {
    let (finished, cx, counts) = join_pieces(pieces.iter()).unwrap();
    Analysis { finished, cx, counts }
}

#[test]
fn one_piece_is_the_capture() {
    for path in captures() {
        let packets = packets_of(&path);
        assert_eq!(difference(join(&pieces(&packets, &[])), analyse(&packets, options())), None, "{}", name(&path));
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

/// What is the same however a run is cut. Pieces have the first PINGs each, rows of RPCs that were open stand behind others,
/// names have other numbers, and methods without a name are told apart by their connections' numbers.
fn comparable(mut analysis: Analysis) -> Vec<String> {
    analysis.cx.pings = Default::default();
    let agents = analysis.cx.strings.agents.texts();
    number_by_name(&mut analysis.finished.connections.client_agent, &agents);
    number_by_name(&mut analysis.finished.connections.server_agent, &agents);
    number_by_name(&mut analysis.cx.failures.answered_by, &agents);
    let methods = analysis.cx.strings.methods.texts();
    number_by_name(&mut analysis.cx.delays.method, &methods);
    number_by_name(&mut analysis.cx.connection_methods.method, &methods);
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
    analysis.cx.rpcs.arrange(&order);
    analysis.cx.rpc_sizes.arrange(&order);
    let named = |line: String| {
        line.split_once("\") (")
            .filter(|(name, _)| name.starts_with("Some(\"\\0"))
            .map_or(line.clone(), |(_, rest)| rest.to_owned())
    };
    everything(analysis).into_iter().map(named).collect()
}

#[test]
fn pieces_joined_are_the_capture() {
    let mut wrong = Vec::new();
    for path in captures() {
        let packets = packets_of(&path);
        let cuts: Vec<usize> = (1..7).map(|part| packets.len() * part / 7).collect();
        let pieces = pieces(&packets, &cuts);
        let joined = join(&pieces);
        let checked = joined.check_bytes().and_then(|()| joined.check_durations());
        let (found, expected) = (comparable(joined), comparable(analyse(&packets, options())));
        let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        let differs = differs.map(|(found, expected)| format!("{found}\nis not\n{expected}"));
        wrong.extend(checked.err().into_iter().chain(differs).map(|text| format!("{}: {text}", name(&path))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A run that goes on with what another saved finds what that would have found. TLS and IP fragments are not saved.
#[test]
fn saved_runs_go_on() {
    let mut wrong = Vec::new();
    for path in captures() {
        let packets = packets_of(&path);
        let cuts: Vec<usize> = (1..7).map(|part| packets.len() * part / 7).collect();
        let expected = join(&pieces(&packets, &cuts));
        if expected.counts.fragments == 0 && expected.finished.connections.tls.iter().all(|&is_tls| is_tls == 0) {
            let found = comparable(join(&saved_pieces(&packets, &cuts)));
            let differs = found.into_iter().zip(comparable(expected)).find(|(found, expected)| found != expected);
            wrong.extend(differs.map(|(found, expected)| format!("{}: {found}\nis not\n{expected}", name(&path))));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is saved may be damaged: it is refused, or read on as anything, and nothing panics.
#[test]
fn damaged_states_do_no_harm() {
    for path in captures().iter().take(12) {
        let packets = packets_of(path);
        let half = packets.len() / 2;
        let mut pipeline = Pipeline::resumable(options(), Arc::default());
        (1..).zip(&packets[..half]).for_each(|(number, packet)| pipeline.packet(&packet.numbered(number)));
        pipeline.cut(i64::MIN);
        let saved = pipeline.save().unwrap();
        assert!(Pipeline::resume(options(), Arc::default(), &saved[..saved.len() / 2]).is_err());
        for nth in 0..40 {
            let mut damaged = saved.clone();
            let at = 60 + (nth * 7919) % (damaged.len() - 60);
            damaged[at] ^= 1 << (nth % 8);
            let Ok(mut pipeline) = Pipeline::resume(options(), Arc::default(), &damaged) else { continue };
            (1..).zip(&packets[half..]).for_each(|(number, packet)| pipeline.packet(&packet.numbered(number)));
            let _ = join(&[pipeline.cut_last(0)]);
        }
    }
}

/// Each RPC is complete in one piece, with the row that it has in the whole capture, and open in those before.
#[test]
fn rows_of_pieces_are_those_of_the_capture() {
    let key = |analysis: &Analysis, rpc: &Rpc| {
        let row = rpc.connection as usize;
        (analysis.finished.connections.client_port[row], rpc.times.0, rpc.packets.0, rpc.stream)
    };
    for path in captures() {
        let packets = packets_of(&path);
        let cuts: Vec<usize> = (1..5).map(|part| packets.len() * part / 5).collect();
        let whole = analyse(&packets, options());
        let mut expected: Vec<_> = whole
            .rpcs()
            .iter()
            .filter(|rpc| rpc.is_complete())
            .map(|rpc| (key(&whole, rpc), rpc.times.1, rpc.status))
            .collect();
        let mut found = Vec::new();
        for piece in &pieces(&packets, &cuts) {
            let one = join(std::slice::from_ref(piece));
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
