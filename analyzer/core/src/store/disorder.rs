//! The order of rows of packets, frames and messages where segments are read connection by connection: that of the packets with
//! which they were written, as where every segment is read when it comes.

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
    pub first: usize,
    /// What was read when they were written, in the terms of [`RpcOrder`](super::rpc_order::RpcOrder).
    pub read: Vec<u64>,
}

impl Disordered {
    /// The rows of the whole table in order; `None` where they are.
    pub fn order(&self) -> Option<Vec<u32>> {
        if self.read.is_sorted() {
            return None;
        }
        let mut rows: Vec<u32> = (0..(self.first + self.read.len()) as u32).collect();
        let read = |row: &u32| self.read.get(*row as usize - self.first).copied();
        rows.get_mut(self.first..)?.sort_by_key(read); // stable: a packet writes rows in order
        Some(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_get_the_order_of_what_was_read_behind_those_that_have_one() {
        let order = |first, read: &[u64]| Disordered { first, read: read.to_vec() }.order();
        assert_eq!(order(2, &[5, 9, 9, 5, 7]), Some(vec![0, 1, 2, 5, 6, 3, 4]));
        assert_eq!(order(2, &[5, 5, 9]), None);
    }
}
