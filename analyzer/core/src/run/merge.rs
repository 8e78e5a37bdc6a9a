//! Merges what several threads found into one result.

use crate::connection::Ended;
use crate::store::context::{Context, NO_METHOD};

use super::packed::PutAway;

/// Takes the tables of another thread in; gives the numbers of its agents here by their numbers there.
///
/// Rows are appended: `settle` brings them into order. Everything that is summed is exact.
pub fn absorb(cx: &mut Context, mut other: Context) -> Vec<u32> {
    let methods = cx.strings.methods.absorb(&other.strings.methods);
    let agents = cx.strings.agents.absorb(&other.strings.agents);
    let errors = cx.strings.errors.absorb(&other.strings.errors);
    let here = |method: u32| methods.get(method as usize).copied().unwrap_or(NO_METHOD);
    for error in &mut other.rpcs.grpc_message {
        *error = errors.get(*error as usize).copied().unwrap_or(*error);
    }
    for method in other.method_columns().flatten() {
        *method = here(*method);
    }
    append_deadlines(cx, &mut other);
    let before = cx.rpcs.len() as u32;
    for rpc in &mut other.failures.rpc {
        *rpc += before;
    }
    for agent in &mut other.failures.answered_by {
        *agent = agents.get(*agent as usize).copied().unwrap_or(*agent);
    }
    let reasons: Vec<u32> = other.goaway_reasons.iter().map(|reason| cx.goaway_reason(reason)).collect();
    for reason in &mut other.goaways.reason {
        *reason = reasons.get(*reason as usize).copied().unwrap_or(0);
    }
    cx.append_tables(&mut other);
    cx.slowest.absorb(&other.slowest);
    cx.sampled.absorb(&other.sampled);
    cx.acts_left_out += other.acts_left_out;
    cx.problems.absorb(&other.problems);
    for (sum, count) in cx.totals.frames.iter_mut().zip(other.totals.frames) {
        *sum += count;
    }
    cx.totals.messages += other.totals.messages;
    cx.totals.begun_before += other.totals.begun_before;
    cx.totals.other_streams += other.totals.other_streams;
    cx.totals.compressed_messages += other.totals.compressed_messages;
    for (index, stats) in other.methods.iter_mut().enumerate() {
        let method = index.checked_sub(1).map_or(NO_METHOD, |method| here(method as u32));
        if let Some(stats) = stats {
            cx.method(method).absorb(stats);
        }
    }
    agents
}

/// The connections of two threads, each by its numbers, in one order; `agents` has the new numbers of the agents of `ours`.
pub fn in_order(ours: Vec<PutAway>, theirs: Vec<PutAway>, agents: Vec<u32>) -> impl Iterator<Item = (u32, Ended)> {
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    std::iter::from_fn(move || {
        let is_ours = match (ours.peek(), theirs.peek()) {
            (Some(one), Some(other)) => one.number < other.number,
            (one, _) => one.is_some(),
        };
        let finished = if is_ours { ours.next() } else { theirs.next() }?;
        let mut ended = finished.ended()?;
        for agent in [&mut ended.row.client_agent, &mut ended.row.server_agent].into_iter().filter(|_| is_ours) {
            *agent = agents.get(*agent as usize).copied().unwrap_or(*agent);
        }
        Some((finished.number, ended))
    })
}

/// Deadlines are kept only from the first RPC that has one on.
fn append_deadlines(cx: &mut Context, other: &mut Context) {
    if cx.deadlines.is_empty() && other.deadlines.is_empty() {
        return;
    }
    cx.deadlines.resize(cx.rpcs.len(), -1);
    other.deadlines.resize(other.rpcs.len(), -1);
    cx.deadlines.append(&mut other.deadlines);
}
