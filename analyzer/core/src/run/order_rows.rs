//! Sorts rows so that the result does not depend on the number of threads, nor on segments that were buffered to be read
//! connection by connection. Keeps no more rows than the limits allow.
//!
//! A connection is read by one thread in the order of its packets; only how connections are interleaved differs. So
//! rows are sorted by packet and connection, those of a connection staying as they are, and the first ones are kept.

use crate::limits;
use crate::store::context::{Context, NO_METHOD};
use crate::store::largest::scatter;
use crate::store::methods::OK;
use crate::store::tables::{ProblemLog, Rpcs, rpc_flag, take_first};

/// Brings everything that is in the order of reading into that of the capture.
pub fn order_rows(cx: &mut Context) {
    number_methods(cx);
    if cx.options.rpc_rows {
        cx.order_rpcs();
    } else {
        keep_examples(cx);
    }
    macro_rules! arrange {
        ($table:ident, $most:expr, $packet:ident) => {
            let table = &cx.$table;
            let key = |row: usize| (at(&table.$packet, row), at(&table.connection, row));
            if let Some(order) = order(table.len(), $most, key) {
                cx.$table.arrange(&order);
            }
        };
    }
    arrange!(waits, usize::MAX, resumed_at_packet);
    arrange!(record_waits, usize::MAX, resumed_at_packet);
    arrange!(stalls, limits::STALLS, resumed_at_packet);
    arrange!(unanswered, usize::MAX, first_packet);
    arrange!(undelivered, usize::MAX, first_packet);
    arrange!(closings, usize::MAX, packet);
    arrange!(open_rpcs, limits::OPEN_RPCS, first_packet);
    arrange!(pings, limits::PINGS, packet);
    arrange!(goaways, limits::GOAWAYS, packet);
    arrange!(delays, limits::DELAYS, data_packet);
    arrange!(other_requests, limits::OTHER_REQUESTS, first_packet);
    arrange!(repeats, limits::REPEATS, packet);
    arrange!(queues, limits::QUEUES, longest_packet);
    arrange!(records, usize::MAX, connection);
    cx.acts_left_out += cx.acts.len().saturating_sub(limits::ACTS) as u64;
    arrange!(acts, limits::ACTS, packet);
    arrange!(idles, usize::MAX, connection);
    arrange!(connection_methods, usize::MAX, connection);
    arrange_selected(cx);
    arrange_failures(cx);
    arrange_problems(&mut cx.problems);
}

fn at(column: &[u32], row: usize) -> u32 {
    column.get(row).copied().unwrap_or(u32::MAX)
}

/// The rows in the order of their keys, `most` of them; `None` where they are so already. Rows of equal keys stay.
fn order(rows: usize, most: usize, key: impl Fn(usize) -> (u32, u32)) -> Option<Vec<u32>> {
    if rows <= most && (1..rows).all(|row| key(row - 1) <= key(row)) {
        return None;
    }
    let mut keys: Vec<(u64, u32)> = (0..rows)
        .map(|row| {
            let (first, second) = key(row);
            (u64::from(first) << 32 | u64::from(second), row as u32)
        })
        .collect();
    keys.sort_unstable();
    keys.truncate(most);
    Some(keys.into_iter().map(|(_, row)| row).collect())
}

/// Methods whose names are not in the capture get those that were given for them, and their RPCs count with those of equal
/// names: gives old numbers and new ones.
fn name_methods(cx: &mut Context) -> Vec<(u32, u32)> {
    if cx.options.labels.is_empty() {
        return Vec::new();
    }
    let unnamed = cx.strings.unnamed_methods();
    let mut named = Vec::new();
    for (label, name) in cx.options.labels.clone() {
        let Some(&old) = label.checked_sub(1).and_then(|place| unnamed.get(place as usize)) else { continue };
        let new = cx.strings.method(name.as_bytes());
        if let Some(mut stats) = cx.methods.get_mut(old as usize + 1).and_then(Option::take) {
            cx.method(new).absorb(&mut stats);
            named.push((old, new));
        }
    }
    named
}

/// Methods get numbers in the order in which their first RPCs began, whatever their names.
fn number_methods(cx: &mut Context) {
    let named = name_methods(cx);
    let known = cx.strings.methods.len();
    let key = |number: &u32| {
        let stats = cx.methods.get(*number as usize + 1).and_then(Option::as_ref);
        (
            stats.map_or((i64::MAX, [u32::MAX; 2]), |stats| (stats.first_start, stats.first_place)),
            cx.strings.methods.get(*number),
        )
    };
    let mut order: Vec<u32> = (0..known as u32).collect();
    order.sort_by(|one, other| key(one).cmp(&key(other)));
    if order.is_sorted() && named.is_empty() {
        return;
    }
    let mut numbers = vec![NO_METHOD; known];
    for (number, &old) in (0..).zip(&order) {
        if let Some(place) = numbers.get_mut(old as usize) {
            *place = number;
        }
    }
    for (old, new) in named {
        numbers[old as usize] = numbers[new as usize];
    }
    cx.methods.resize_with(known + 1, || None);
    let mut before: Vec<_> = cx.methods.drain(1..).collect();
    cx.methods.extend(order.iter().map(|&old| before.get_mut(old as usize).and_then(Option::take)));
    cx.strings.methods.arrange(&order);
    cx.emitted.renumbered.clone_from(&numbers);
    for method in cx.method_columns().flatten() {
        *method = numbers.get(*method as usize).copied().unwrap_or(NO_METHOD);
    }
}

/// Of the RPCs that have rows for being among the longest or in the sample when they ended, those stay that are at the end.
fn keep_examples(cx: &mut Context) {
    let (rpcs, methods, marks) = (&cx.rpcs, &cx.methods, cx.options.marks_examples);
    let stays = |row: usize| {
        let flags = rpcs.flags.get(row).copied().unwrap_or(0);
        // where examples are marked, those of the longest are, too, which have rows for something else
        let is_marked = || flags & rpc_flag::EXAMPLE != 0 || is_failed(rpcs, row);
        flags & rpc_flag::LONG == 0 || (marks && is_marked()) || {
            let method = at(&rpcs.method, row);
            let stats = methods.get(if method == NO_METHOD { 0 } else { method as usize + 1 });
            let duration = rpcs.duration_ns.get(row).map_or(0, |&ns| ns.unsigned_abs());
            let place = [at(&rpcs.first_packet, row), at(&rpcs.stream, row)];
            cx.slowest.has(duration, place)
                || is_sampled(cx, place)
                || stats.and_then(Option::as_ref).is_some_and(|stats| stats.is_among_longest(duration, place))
        }
    };
    let kept: Vec<u32> = (0..rpcs.len()).filter(|&row| stays(row)).map(|row| row as u32).collect();
    let sorted = sorted_rows(rpcs, &kept);
    if kept.len() < rpcs.len() || !sorted.is_sorted() {
        let rows = rpcs.len();
        let mut places = vec![u32::MAX; rows];
        for (place, &row) in (0..).zip(&sorted) {
            if let Some(cell) = places.get_mut(row as usize) {
                *cell = place;
            }
        }
        for rpc in &mut cx.failures.rpc {
            *rpc = places.get(*rpc as usize).copied().unwrap_or(u32::MAX);
        }
        if !cx.deadlines.is_empty() {
            cx.deadlines.resize(cx.rpcs.len(), -1);
            cx.deadlines = sorted.iter().filter_map(|&row| cx.deadlines.get(row as usize).copied()).collect();
        }
        cx.rpc_budgets = take_first(&mut cx.rpc_budgets, rows, Some(&sorted));
        cx.rpcs.arrange(&sorted);
    }
    if !cx.options.marks_examples {
        for flags in &mut cx.rpcs.flags {
            *flags &= !rpc_flag::LONG;
        }
    }
}

fn is_failed(rpcs: &Rpcs, row: usize) -> bool {
    let is_complete = rpcs.flags.get(row).is_some_and(|flags| flags & rpc_flag::COMPLETE != 0);
    is_complete && rpcs.status.get(row).is_some_and(|&status| status != OK)
}

/// Which rows of RPCs are in the sample; none where all have rows.
pub fn sampled(cx: &Context) -> Vec<bool> {
    if cx.options.sampled == 0 {
        return Vec::new();
    }
    (cx.rpcs.first_packet.iter().zip(&cx.rpcs.stream))
        .map(|(&packet, &stream)| is_sampled(cx, [packet, stream]))
        .collect()
}

fn is_sampled(cx: &Context, place: [u32; 2]) -> bool {
    cx.sampled.has(scatter(place), place)
}

fn sorted_rows(rpcs: &Rpcs, kept: &[u32]) -> Vec<u32> {
    // a packet is of one connection
    let key = |place: usize| {
        let row = kept.get(place).map_or(usize::MAX, |&row| row as usize);
        (at(&rpcs.first_packet, row), at(&rpcs.stream, row))
    };
    match order(kept.len(), usize::MAX, key) {
        Some(order) => order.iter().filter_map(|&place| kept.get(place as usize).copied()).collect(),
        None => kept.to_vec(),
    }
}

/// Packets and frames in the order of the capture, if only some have rows: others were read in it.
fn arrange_selected(cx: &mut Context) {
    let Some(selection) = &cx.options.selection else { return };
    let packets = &cx.packets.packet;
    if let Some(order) = order(packets.len(), usize::MAX, |row| (at(packets, row), 0)) {
        cx.packets.arrange(&order);
        cx.selected.in_flight.arrange(&order);
    }
    let (frames, read_at) = (&cx.frames, &cx.selected.frames_read_at);
    if let Some(order) =
        order(frames.len(), selection.most_frames, |row| (at(read_at, row), at(&frames.connection, row)))
    {
        cx.frames.arrange(&order);
    }
}

/// Failures in the order in which the RPCs ended.
fn arrange_failures(cx: &mut Context) {
    let failures = &cx.failures;
    let key = |row: usize| (at(&failures.last_packet, row), at(&failures.rpc, row));
    if let Some(order) = order(failures.len(), limits::FAILURES, key) {
        cx.failures.arrange(&order);
        cx.failure_budgets = order.iter().filter_map(|&row| cx.failure_budgets.get(row as usize).copied()).collect();
    }
}

/// Problems in the order of packets; their kinds in that of their first rows, those without rows by name.
fn arrange_problems(log: &mut ProblemLog) {
    let key = |row: usize| (at(&log.rows.packet, row), at(&log.rows.connection, row));
    if let Some(order) = order(log.rows.len(), limits::PROBLEMS, key) {
        log.rows.arrange(&order);
    }
    let first = |kind: usize| log.rows.kind.iter().position(|&of| of as usize == kind).unwrap_or(usize::MAX);
    let mut kinds: Vec<(usize, &'static str, usize)> =
        log.kinds.iter().enumerate().map(|(kind, &text)| (first(kind), text, kind)).collect();
    kinds.sort_unstable();
    let mut numbers = vec![0; kinds.len()];
    for (number, &(.., old)) in (0..).zip(&kinds) {
        if let Some(place) = numbers.get_mut(old) {
            *place = number;
        }
    }
    for kind in &mut log.rows.kind {
        *kind = numbers.get(*kind as usize).copied().unwrap_or(0);
    }
    log.counts = kinds.iter().filter_map(|&(.., old)| log.counts.get(old).copied()).collect();
    log.kinds = kinds.into_iter().map(|(_, text, _)| text).collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tables::{ActRow, StallRow};

    #[test]
    fn intervals_without_room_are_counted() {
        let mut cx = Context::default();
        for packet in 0..limits::ACTS as u32 + 5 {
            cx.acts.push(ActRow { packet, ..ActRow::default() });
        }
        cx.acts_left_out = 3;
        order_rows(&mut cx);
        assert_eq!((cx.acts.len(), cx.acts_left_out), (limits::ACTS, 8));
    }

    #[test]
    fn the_first_stalls_of_all_connections_are_kept() {
        let mut cx = Context::default();
        let most = limits::STALLS as u32;
        for row in 0..most + 5 {
            cx.stalls.push(StallRow { connection: row, resumed_at_packet: most + 5 - row, ..StallRow::default() });
        }
        order_rows(&mut cx);
        assert_eq!((cx.stalls.len(), cx.stalls.resumed_at_packet.last()), (limits::STALLS, Some(&most)));
    }
}
