//! Counts the frames of an interval, and begins to count anew at its end.

use crate::http2::hpack::Classifier;
use crate::store::context::Context;

use super::application::Application;
use super::http2::{ByteCounts, Http2};
use super::seen_blocks::SeenBlocks;

impl<A: Application> Http2<A> {
    /// Adds the frames to the sums of `cx`, and begins to count anew.
    pub fn begin_interval(&mut self, cx: &mut Context) {
        self.add_frames(cx);
        self.policy.begin_interval(self.sides[1 - self.client].habits.rpc_frames());
        self.bytes = ByteCounts::default();
        self.sides.iter_mut().for_each(|side| side.habits.begin_interval());
    }

    /// Adds the frames to the sums of `cx`.
    pub(in crate::http2) fn add_frames(&self, cx: &mut Context) {
        for side in &self.sides {
            for (sum, &count) in cx.totals.frames.iter_mut().zip(&side.habits.frames) {
                *sum += u64::from(count);
            }
        }
    }

    /// Shows the class of every entry of the header tables.
    pub fn each_class(&self, show: &mut impl FnMut(<A::Fields as Classifier>::Class)) {
        self.sides.iter().for_each(|side| side.hpack.each_class(show));
    }

    /// Forgets the meaning of header blocks that came before.
    pub fn forget_seen_blocks(&mut self) {
        self.sides.iter_mut().for_each(|side| side.seen_blocks = SeenBlocks::default());
    }
}
