//! HTTP/2 requests that are no RPCs: health checks, REST through the same proxy.

use crate::at::At;
use crate::limits;
use crate::store::context::Context;
use crate::store::tables::OtherRequestRow;

use super::call::Call;

/// Adds the row of a request, which is filled when it is answered and when it ends.
#[cold]
pub(super) fn push_request(connection: u32, call: &mut Call, path: u32, cx: &mut Context) {
    let row = cx.other_requests.len();
    if row >= limits::OTHER_REQUESTS + limits::ROWS_AHEAD {
        return;
    }
    call.other_request = row as u32;
    cx.other_requests.push(OtherRequestRow {
        connection,
        stream: call.id,
        path,
        start_time_ns: call.first.time,
        duration_ns: -1,
        first_packet: call.first.packet,
        ..OtherRequestRow::default()
    });
}

/// The response's `:status` came.
#[cold]
pub(super) fn note_answer(call: &Call, cx: &mut Context) {
    if let Some(http_status) = cx.other_requests.http_status.get_mut(call.other_request as usize) {
        *http_status = call.http_status;
    }
}

/// The response ended at `at`, or the stream was reset there.
#[cold]
pub(super) fn note_end(call: &Call, at: At, cx: &mut Context) {
    let (row, (packet, time)) = (call.other_request as usize, at.completes(&call.first));
    let table = &mut cx.other_requests;
    let cells = (table.duration_ns.get_mut(row), table.last_packet.get_mut(row));
    if let (Some(duration_ns @ ..0), Some(last_packet)) = cells {
        (*duration_ns, *last_packet) = (time.saturating_sub(call.first.time), packet);
    }
}
