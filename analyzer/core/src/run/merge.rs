//! Merges what several threads found into one result.

use crate::store::context::{Context, NO_METHOD};

/// Takes the tables of another thread in; gives the numbers of its agents here by their numbers there.
///
/// Rows are appended: `settle` brings them into order. Everything that is summed is exact.
pub fn absorb(cx: &mut Context, mut other: Context) -> Vec<u32> {
    let methods = cx.strings.methods.absorb(&other.strings.methods);
    let agents = cx.strings.agents.absorb(&other.strings.agents);
    let errors = cx.strings.errors.absorb(&other.strings.errors);
    let here = |method: u32| methods.get(method as usize).copied().unwrap_or(NO_METHOD);
    for method in &mut other.rpcs.method {
        *method = here(*method);
    }
    for error in &mut other.rpcs.grpc_message {
        *error = errors.get(*error as usize).copied().unwrap_or(*error);
    }
    for column in [
        &mut other.waits.method,
        &mut other.delays.method,
        &mut other.repeats.method,
        &mut other.other_requests.path,
        &mut other.open_rpcs.method,
        &mut other.connection_methods.method,
        &mut other.acts.method,
    ] {
        for method in column {
            *method = here(*method);
        }
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
    cx.rpcs.append(&mut other.rpcs);
    cx.rpc_sizes.append(&mut other.rpc_sizes);
    cx.rpc_budgets.append(&mut other.rpc_budgets);
    cx.request_budgets.append(&mut other.request_budgets);
    cx.request_ends.append(&mut other.request_ends);
    cx.waits.append(&mut other.waits);
    cx.record_waits.append(&mut other.record_waits);
    cx.records.append(&mut other.records);
    cx.idles.append(&mut other.idles);
    cx.acts.append(&mut other.acts);
    cx.acts_left_out += other.acts_left_out;
    cx.stalls.append(&mut other.stalls);
    cx.unanswered.append(&mut other.unanswered);
    cx.undelivered.append(&mut other.undelivered);
    cx.closings.append(&mut other.closings);
    cx.open_rpcs.append(&mut other.open_rpcs);
    cx.pings.append(&mut other.pings);
    cx.goaways.append(&mut other.goaways);
    cx.delays.append(&mut other.delays);
    cx.other_requests.append(&mut other.other_requests);
    cx.queues.append(&mut other.queues);
    cx.failures.append(&mut other.failures);
    cx.repeats.append(&mut other.repeats);
    cx.failure_budgets.append(&mut other.failure_budgets);
    cx.connection_methods.append(&mut other.connection_methods);
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

/// Deadlines are kept only from the first RPC that has one on.
fn append_deadlines(cx: &mut Context, other: &mut Context) {
    if cx.deadlines.is_empty() && other.deadlines.is_empty() {
        return;
    }
    cx.deadlines.resize(cx.rpcs.len(), -1);
    other.deadlines.resize(other.rpcs.len(), -1);
    cx.deadlines.append(&mut other.deadlines);
}
