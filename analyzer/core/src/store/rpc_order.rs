//! The order of rows of RPCs where segments are read connection by connection: that of the packets with which they began.

/// The packet with which each row was begun.
///
/// Segments are read in windows, those of a later window behind all of an earlier one. So a row that is still to come
/// belongs behind all that are there.
#[derive(Clone, Debug, Default)]
pub struct RpcOrder {
    /// Twice the packet that is read, or before which a connection ends; of the former one more.
    now: u64,
    /// By row; empty where rows are in order anyway.
    begun: Vec<u64>,
}

impl RpcOrder {
    /// A packet is read.
    #[inline]
    pub fn read(&mut self, packet: u32) {
        self.now = 2 * u64::from(packet) + 1;
    }

    /// A connection ends before a packet is read: bytes behind missing ones may yet begin RPCs.
    pub fn end_before(&mut self, packet: u32) {
        self.now = 2 * u64::from(packet);
    }

    /// The packet that is read, or before which a connection ends.
    pub fn packet(&self) -> u32 {
        (self.now / 2) as u32
    }

    /// What is read, so that what is read later has a higher number.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// A row begins.
    pub fn push(&mut self) {
        self.begun.push(self.now);
    }

    /// The largest number of rows up to `most` behind which no row belongs before one of them.
    pub fn cut(&self, most: usize) -> usize {
        let Some(behind) = self.begun.get(most..) else { return most };
        let mut least = behind.iter().min().copied().unwrap_or(u64::MAX);
        let mut highest: Vec<u64> = self.begun.get(..most).unwrap_or_default().to_vec();
        for row in 1..highest.len() {
            highest[row] = highest[row].max(highest[row - 1]);
        }
        for rows in (1..=most).rev() {
            if highest.get(rows - 1).is_none_or(|&highest| highest <= least) {
                return rows;
            }
            least = least.min(self.begun.get(rows - 1).copied().unwrap_or(u64::MAX));
        }
        0
    }

    /// Takes the first rows out; gives their places in order, or `None` where they are in order.
    pub fn take_first(&mut self, rows: usize) -> Option<Vec<u32>> {
        let begun: Vec<u64> = self.begun.drain(..rows.min(self.begun.len())).collect();
        if begun.is_sorted() {
            return None;
        }
        let mut places: Vec<u32> = (0..begun.len() as u32).collect();
        places.sort_by_key(|&place| begun.get(place as usize).copied()); // stable: a packet begins RPCs in order
        Some(places)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::budget::Budget;
    use crate::store::context::Context;
    use crate::store::options::Options;
    use crate::store::tables::{FailureRow, RpcRow, RpcSizesRow};

    fn order(begun: &[u64]) -> RpcOrder {
        RpcOrder { begun: begun.to_vec(), ..RpcOrder::default() }
    }

    #[test]
    fn rows_are_cut_where_none_behind_belongs_before() {
        let order = order(&[1, 5, 3, 3, 9, 7, 12]);
        assert_eq!((0..8).map(|most| order.cut(most)).collect::<Vec<_>>(), [0, 1, 1, 1, 4, 4, 6, 7]);
        assert_eq!(RpcOrder::default().cut(5), 5);
    }

    /// What a connection's end begins belongs behind the packet before it, whichever was read last.
    #[test]
    fn a_connection_ends_between_two_packets() {
        let mut order = RpcOrder::default();
        order.read(6);
        order.push();
        order.end_before(6);
        order.push();
        order.read(5);
        order.push();
        assert_eq!((order.packet(), order.take_first(3)), (5, Some(vec![2, 1, 0])));
    }

    #[test]
    fn rows_are_taken_in_order_and_their_corrections_name_the_places_they_got() {
        let mut cx = Context::new(Options { rpc_rows: true, ..Options::default() });
        for (stream, packet, settled) in [(1, 4, 1), (3, 9, 0), (5, 4, 1), (7, 2, 0), (9, 20, 1)] {
            cx.rpc_order.read(packet);
            cx.rpc_order.push();
            cx.rpcs.push(RpcRow { stream, ..RpcRow::default() });
            cx.rpc_sizes.push(RpcSizesRow { settled, ..RpcSizesRow::default() });
            cx.rpc_budgets.push(Budget::default());
        }
        cx.deadlines = vec![-1, 30];
        for rpc in [1, 3, 4] {
            cx.failures.push(FailureRow { rpc, ..FailureRow::default() });
        }
        let rows = cx.take_rpcs(4);
        assert!(format!("{:?}", rows.columns).contains("U32([7, 1, 5, 3])"));
        assert_eq!(rows.deadlines, [-1, -1, -1, 30]);
        assert_eq!((cx.rpcs.stream.as_slice(), cx.emitted.place(4)), ([9].as_slice(), Some(0)));
        assert_eq!(cx.failures.rpc, [3, 0, 4], "failures refer to the places that rows have in the end");
        assert_eq!([1, 3, 4].map(|number| cx.emitted.taken_as(number)), [3, 0, 4]);
        cx.emitted.settle(1);
        cx.emitted.settle(3);
        assert_eq!(cx.emitted.take_settled().0, [0, 3]);
    }
}
