//! Computes flow-control windows (RFC 9113 section 6.9). They are exact if all credit is in the capture; otherwise bounds
//! are known.

use crate::http2::frame::settings;

use super::application::Application;
use super::http2::Http2;

/// A window with less room is as good as used up for a sender that owes more: it cares to send no frame so short (heuristic: a
/// sender that does has sent what there was room for).
pub const LITTLE: i64 = 1_024;

impl<A: Application> Http2<A> {
    /// The connection's flow-control window for DATA of `side`; `None` while unknown.
    pub fn connection_window(&self, side: usize) -> Option<i64> {
        let window = i64::from(settings::DEFAULT_WINDOW) + self.sides[side].connection_credit;
        if self.is_read_whole() { Some(window) } else { self.late_window(side) }
    }

    /// The flow-control window of a stream for DATA of `side`; `None` while unknown.
    pub fn stream_window(&mut self, side: usize, id: u32) -> Option<i64> {
        let initial = i64::from(self.sides[1 - side].in_force.initial_window_size);
        if !self.is_read_whole() {
            return None;
        }
        self.streams.find_mut(id).map(|stream| initial + stream.credit[side])
    }

    /// The sizes of a stream's window and of the connection's for DATA of `side`, so far: a receiver may enlarge them.
    /// `None` while unknown.
    pub fn window_sizes(&self, side: usize) -> Option<[i64; 2]> {
        let connection = i64::from(settings::DEFAULT_WINDOW) + self.sides[side].most_connection_credit;
        self.is_read_whole().then(|| [i64::from(self.binding(side).initial_window_size), connection])
    }

    /// DATA of `side` was within its windows: they were at least as large.
    #[cold]
    pub(in crate::http2) fn note_least_credit(&mut self, side: usize, slot: u32) {
        let sender = &mut self.sides[side];
        sender.least_connection_credit = sender.least_connection_credit.min(sender.connection_credit);
        sender.used_up.sent(sender.connection_credit);
        if let Some(stream) = self.streams.get_mut(slot).filter(|stream| !A::begun_before(&stream.state)) {
            sender.least_stream_credit = sender.least_stream_credit.min(stream.credit[side]);
        }
    }

    /// What both windows of a stream for DATA of `side` allow at least, when their openings are not in the capture:
    /// as much as was used of them before and given back since. `not_there` is credit for the connection and for the
    /// stream that has not reached the sender. `None` for a stream from before the capture.
    pub fn least_window(&mut self, side: usize, id: u32, not_there: [i64; 2]) -> Option<i64> {
        let sender = &mut self.sides[side];
        let connection = sender.connection_credit.saturating_sub(not_there[0]);
        sender.least_connection_credit = sender.least_connection_credit.min(connection);
        let stream = self.streams.find_mut(id).filter(|stream| !A::begun_before(&stream.state))?;
        let stream = stream.credit[side].saturating_sub(not_there[1]);
        sender.least_stream_credit = sender.least_stream_credit.min(stream);
        let left = connection.saturating_sub(sender.least_connection_credit);
        Some(left.min(stream.saturating_sub(sender.least_stream_credit)))
    }

    /// What is granted of both windows beyond what was used, from an unknown beginning on; `None` without the stream.
    pub fn credits(&mut self, side: usize, id: u32) -> Option<[i64; 2]> {
        let stream = self.streams.find_mut(id)?.credit[side];
        Some([self.sides[side].connection_credit, stream])
    }

    /// The connection's window for DATA of `side` when stops have proved where it is used up.
    pub(in crate::http2) fn late_window(&self, side: usize) -> Option<i64> {
        let sender = &self.sides[side];
        let zero = sender.used_up.zero(self.gaps())?;
        Some(sender.connection_credit.saturating_sub(zero))
    }

    /// `side` stopped inside a message of stream `id`, behind a whole DATA frame, with these credits of connection and
    /// stream, and went on right when the connection had more. `segment` is the size of a full segment.
    #[cold]
    pub fn note_stop_for_credit(&mut self, side: usize, id: u32, credits: [i64; 2], segment: i64) {
        let gaps = self.gaps();
        if self.sides[side].connection_credit > credits[0] {
            self.sides[side].used_up.stopped(id, credits, segment, gaps);
        }
    }

    fn gaps(&self) -> [u32; 2] {
        [self.sides[0].gaps, self.sides[1].gaps]
    }
}
