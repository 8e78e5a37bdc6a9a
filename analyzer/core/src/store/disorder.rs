//! The order of rows of packets, frames and messages where segments are read connection by connection: that of the packets with
//! which they were written, as where every segment is read when it comes.

use super::context::Context;
use super::tables::Column;

/// A table of which rows are taken while the run goes on.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    /// One row per packet.
    Packets = 0,
    /// One row per frame.
    Frames = 1,
    /// One row per message.
    Messages = 2,
}

/// Rows of those tables, by [`Stream`], that have no order yet.
pub type Disorder = [Disordered; 3];

/// Rows of one table that have no order yet.
#[derive(Clone, Debug, Default)]
pub struct Disordered {
    /// How many rows before them are in order.
    first: usize,
    /// What was read when they were written, in the terms of [`RpcOrder`](super::rpc_order::RpcOrder).
    read: Vec<u64>,
}

impl Disordered {
    /// The rows of the whole table in order; `None` where they are.
    fn order(&self) -> Option<Vec<u32>> {
        if self.read.is_sorted() {
            return None;
        }
        let mut rows: Vec<u32> = (0..(self.first + self.read.len()) as u32).collect();
        let read = |row: &u32| self.read.get(*row as usize - self.first).copied();
        rows.get_mut(self.first..)?.sort_by_key(read); // stable: a packet writes rows in order
        Some(rows)
    }
}

impl Context {
    /// The rows that follow have no order until [`Self::restore_order`].
    pub fn begin_disorder(&mut self) {
        let rows = [self.packets.len(), self.frames.len(), self.messages.len()];
        self.disorder = Some(rows.map(|first| Disordered { first, read: Vec::new() }));
    }

    /// A row is written while a packet is read.
    #[inline]
    pub fn note_row(&mut self, table: Stream) {
        if let Some(disorder) = &mut self.disorder {
            disorder[table as usize].read.push(self.rpc_order.now());
        }
    }

    /// Puts the rows in order that have come since [`Self::begin_disorder`].
    pub fn restore_order(&mut self) {
        let Some([packets, frames, messages]) = self.disorder.take() else { return };
        packets.order().iter().for_each(|order| self.packets.arrange(order));
        frames.order().iter().for_each(|order| self.frames.arrange(order));
        messages.order().iter().for_each(|order| self.messages.arrange(order));
    }

    /// Takes the rows that are in order.
    pub fn take_stream(&mut self, table: Stream) -> Vec<(&'static str, Column)> {
        let disordered = self.disorder.as_mut().map(|disorder| &mut disorder[table as usize].first);
        let rows = disordered.map_or(usize::MAX, std::mem::take);
        match table {
            Stream::Packets => self.packets.take_first(rows, None),
            Stream::Frames => self.frames.take_first(rows, None),
            Stream::Messages => self.messages.take_first(rows, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tables::FrameRow;

    #[test]
    fn rows_get_the_order_of_the_packets_that_wrote_them() {
        let mut cx = Context::default();
        let write = |cx: &mut Context, packet: u32, stream: u32| {
            cx.rpc_order.read(packet);
            cx.push_frame(FrameRow { stream, ..FrameRow::default() });
        };
        write(&mut cx, 1, 1);
        cx.begin_disorder();
        for (packet, stream) in [(2, 3), (5, 5), (5, 7), (3, 9), (4, 11)] {
            write(&mut cx, packet, stream);
        }
        let streams = |cx: &mut Context| match cx.take_stream(Stream::Frames).into_iter().nth(2) {
            Some(("stream", Column::U32(streams))) => streams,
            other => panic!("no streams, but {other:?}"),
        };
        assert_eq!(streams(&mut cx), [1], "those behind have no order yet");
        assert!(streams(&mut cx).is_empty());
        write(&mut cx, 2, 13);
        cx.restore_order();
        write(&mut cx, 6, 15);
        assert_eq!(streams(&mut cx), [3, 13, 9, 11, 5, 7, 15]);
    }
}
