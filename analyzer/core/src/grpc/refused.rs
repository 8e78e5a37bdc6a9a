//! Notes responses that their clients refused though they were complete: C-core resets the stream of a message or of metadata
//! beyond its limits.

use crate::at::At;
use crate::http2::connection::streams::NONE;
use crate::http2::connection::watch::Watch;
use crate::store::context::Context;
use crate::store::tables::Layer;

use super::activity::Activity;
use super::call::Call;
use super::connection::{Grpc, Parser};
use super::status::{self, Ending};

/// ENHANCE_YOUR_CALM (RFC 9113 section 7): what C-core makes of RESOURCE_EXHAUSTED. Clients send other codes when they have
/// read the response, too: grpc-go and connect-go NO_ERROR, connect-es INTERNAL_ERROR.
const ENHANCE_YOUR_CALM: u32 = 11;

impl<W: Watch<Grpc> + ?Sized> Parser<'_, W> {
    /// RST_STREAM for a stream that is over: its client may have refused the response.
    #[cold]
    pub(super) fn reset_removed(&mut self, id: u32, code: u32) {
        let (at, transport) = (self.at, self.transport);
        let activity = Activity::new(self.h2, self.side, &at, transport);
        if !activity.is_client || code != ENHANCE_YOUR_CALM {
            return;
        }
        let server = 1 - activity.side;
        let Some(call) = self.h2.streams.find_removed(|call| call.id == id) else { return };
        let is_whole = call.finished && call.directions[server].ended && !call.touches_gap;
        if is_whole && call.kind.is_rpc() && !call.reported && call.reset.is_none() {
            call.reset = Some((activity.direction(), code));
            let end = At::new(call.last_packet.max(call.first.packet), call.last_time);
            let corrected = Activity { at: &end, ..activity }.correct_outcome(call, at, self.cx);
            if !corrected {
                self.problem(Layer::Http2, "a response was refused after the row of its RPC had been handed on");
            }
        }
    }
}

impl Activity<'_> {
    /// Changes the outcome of an RPC that ended with OK here, and that its client reset at `reset`. Says whether that was
    /// possible: a row that was emitted stays as it is.
    fn correct_outcome(&self, call: &mut Call, reset: At, cx: &mut Context) -> bool {
        if call.rpc == NONE {
            self.push_ended(call, Ending::REFUSED, cx); // one that failed has a row
        } else {
            let Some(place) = cx.emitted.place(call.rpc) else { return false };
            let Some(status) = cx.rpcs.status.get_mut(place).filter(|status| **status == status::OK) else {
                return true;
            };
            *status = Ending::REFUSED.status;
            if let Some(source) = cx.rpcs.status_source.get_mut(place) {
                *source = Ending::REFUSED.source as u8;
            }
        }
        let statuses = &mut cx.method(call.method).statuses;
        statuses[usize::from(status::OK)] = statuses[usize::from(status::OK)].saturating_sub(1);
        statuses[usize::from(Ending::REFUSED.status)] += 1;
        self.push_failure(call, Some(reset), cx);
        true
    }
}
