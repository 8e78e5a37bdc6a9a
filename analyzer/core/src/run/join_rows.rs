//! Joins the rows of a connection in two intervals that follow one another.

use std::collections::HashMap;
use std::hash::Hash;

use crate::connection::Ended;
use crate::store::budget::LossTime;
use crate::store::context::Context;
use crate::store::tables::{ConnectionRow, DirectionRow, IdleRow, RecordRow, TurnRow};

/// Both together: what was counted is added, of the longest and the densest the larger one is kept, and what is known of the
/// connection is what was known last.
pub fn join(before: &Ended, after: &Ended) -> Ended {
    let mut budget = before.budget;
    budget.add_all(&after.budget);
    let [client, server] = [0, 1].map(|side: usize| join_directions(&before.directions[side], &after.directions[side]));
    Ended {
        id: after.id,
        row: join_connections(&before.row, &after.row),
        budget,
        directions: [client, server],
        turns: join_turns(&before.turns, &after.turns),
        setup: after.setup,
    }
}

/// Adds what losses cost to a connection's row, as budgets are added.
pub fn add_loss(row: &mut ConnectionRow, loss: &LossTime) {
    let mut sum =
        LossTime { reduced_window_ns: row.congestion_after_loss_ns, outage_ns: row.loss_recovery_in_outages_ns };
    sum.add(loss);
    (row.congestion_after_loss_ns, row.loss_recovery_in_outages_ns) = (sum.reduced_window_ns, sum.outage_ns);
}

/// Adds the columns of one row to those of another.
macro_rules! add {
    ($sum:ident, $row:ident: $($column:ident),* $(,)?) => { $($sum.$column = $sum.$column.saturating_add($row.$column);)* };
}

/// Takes columns from an earlier row where its first one is not smaller.
macro_rules! keep_larger {
    ($kept:ident, $row:ident: $(($by:ident, $($column:ident),*)),* $(,)?) => {
        $(if $row.$by >= $kept.$by { $kept.$by = $row.$by; $($kept.$column = $row.$column;)* })*
    };
}

fn join_connections(before: &ConnectionRow, after: &ConnectionRow) -> ConnectionRow {
    let mut row = *after;
    (row.first_time_ns, row.first_packet) = (before.first_time_ns, before.first_packet);
    add!(row, before: rpcs, retries, other_streams, packets_client, packets_server, bytes_client, bytes_server,
        retransmission_timeouts, retransmitted_packets, needless_retransmissions, duplicate_packets, keep_alives,
        out_of_order_packets, urgent_packets, missing_bytes, payload_bytes, decoded_bytes, retransmitted_bytes,
        not_http2_bytes, encrypted_bytes, undecoded_bytes, undelivered_bytes);
    let loss =
        LossTime { reduced_window_ns: before.congestion_after_loss_ns, outage_ns: before.loss_recovery_in_outages_ns };
    add_loss(&mut row, &loss);
    row.late_packets = row.late_packets.max(before.late_packets);
    keep_larger!(row, before: (max_concurrent_rpcs,),
        (recovery_ns, recovery_time_ns, recovery_from_packet, recovery_to_packet, recovery_direction),
        (outage_ns, outage_time_ns, outage_from_packet, outage_to_packet, outage_direction));
    row
}

fn join_directions(before: &DirectionRow, after: &DirectionRow) -> DirectionRow {
    let mut row = *after;
    if before.messages > 0 {
        row.first_message_time_ns = before.first_message_time_ns;
        row.last_message_time_ns = row.last_message_time_ns.max(before.last_message_time_ns);
    }
    add!(row, before: payload_packets, control_packets, ping_packets, ping_ack_packets, window_update_packets,
        settings_packets, data_frames, header_frames, pings, ping_acks, window_updates, settings, resets,
        header_block_bytes, messages, message_bytes, message_packets, busy_intervals, bdp_pings, keepalive_pings,
        drain_pings);
    keep_larger!(row, before: (longest_message_bytes,),
        (dense_packets, dense_first_packet, dense_last_packet, dense_first_time_ns, dense_last_time_ns),
        (dense_pings, dense_ping_first_packet, dense_ping_last_packet, dense_ping_first_time_ns, dense_ping_last_time_ns),
        (dense_updates, dense_update_first_packet, dense_update_last_packet, dense_update_first_time_ns,
            dense_update_last_time_ns));
    row
}

fn join_turns(before: &TurnRow, after: &TurnRow) -> TurnRow {
    let mut row = *after;
    if row.interval_ns < 0 {
        (row.interval_ns, row.interval_spread_ns) = (before.interval_ns, before.interval_spread_ns);
    }
    if row.refills == 0 {
        row.refill_ended_packet = before.refill_ended_packet;
        row.refill_ended_time_ns = before.refill_ended_time_ns;
        row.refill_opened_packet = before.refill_opened_packet;
        row.refill_time_ns = before.refill_time_ns;
    }
    add!(row, before: idle_ns, idles, pauses, pause_ns, bursts, burst_messages, at_limit_ns, at_limit_times,
        ended_at_limit, refills);
    row
}

/// Joins rows of tables that have one row for each connection and something of it.
pub fn join_repeated(cx: &mut Context) {
    macro_rules! join {
        ($table:ident, $key:expr, $join:expr) => {
            let rows = (0..cx.$table.len()).filter_map(|row| cx.$table.get(row)).collect();
            cx.$table = Default::default();
            join_rows(rows, $key, $join).into_iter().for_each(|row| cx.$table.push(row));
        };
    }
    join!(connection_methods, |row| (row.connection, row.method), |_, after| after);
    join!(idles, |row| (row.connection, row.length_class), join_idles);
    join!(records, |row| (row.connection, row.direction), join_records);
}

/// Joins rows of equal keys, in their order.
fn join_rows<R: Copy, K: Hash + Ord>(rows: Vec<R>, key: impl Fn(&R) -> K, join: impl Fn(R, R) -> R) -> Vec<R> {
    let mut joined: Vec<R> = Vec::new();
    let mut places = HashMap::new();
    for row in rows {
        let place = *places.entry(key(&row)).or_insert(joined.len());
        match joined.get_mut(place) {
            Some(known) => *known = join(*known, row),
            None => joined.push(row),
        }
    }
    joined.sort_by_key(key);
    joined
}

fn join_idles(before: IdleRow, after: IdleRow) -> IdleRow {
    let mut row = after;
    add!(row, before: count, total_ns);
    row
}

fn join_records(before: RecordRow, after: RecordRow) -> RecordRow {
    let mut row = after;
    add!(row, before: records, bytes, answers, answer_ns, pauses, pause_ns);
    row.longest = row.longest.max(before.longest);
    keep_larger!(row, before:
        (longest_answer_ns, answer_time_ns, answer_from_packet, answer_to_packet),
        (longest_pause_ns, pause_time_ns, pause_from_packet, pause_to_packet));
    row
}
