//! Rows of RPCs that are emitted while the run goes on, so that memory does not grow with them.
//!
//! Rows are emitted in their order. A row that may still change is emitted, too, if too many others wait behind it. It
//! is then kept here, and emitted once more when its RPC is over.

use std::collections::HashMap;

use super::budget::Budget;
use super::tables::{Column, RpcRow, RpcSizes, RpcSizesRow, Rpcs, rpc_flag};

/// All that is known of one RPC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub row: RpcRow,
    pub sizes: RpcSizesRow,
    pub deadline: i64,
    pub budget: Budget,
}

/// Rows of RPCs as columns.
#[derive(Debug, Default)]
pub struct Rows {
    /// What [`Rpcs`] and [`RpcSizes`] hold.
    pub columns: Vec<(&'static str, Column)>,
    /// One per row, or fewer when the last ones have none.
    pub deadlines: Vec<i64>,
    /// One per row.
    pub budgets: Vec<Budget>,
}

/// Which rows of RPCs are taken while the run goes on.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// Complete rows, up to the first that may still change, are taken if there are at least this many.
    pub least: usize,
    /// With more rows than that behind it, that one is taken, too.
    pub most: usize,
}

/// What was taken at one time.
#[derive(Debug, Default)]
pub struct Taken {
    /// Rows.
    pub rows: Rows,
    /// Numbers of rows that were taken before they were complete, ascending, and the rows, now that they are.
    pub settled: (Vec<u32>, Rows),
    /// Methods that were not known the last time, by number; `None` for one whose name was sent before the capture.
    pub methods: Vec<Option<String>>,
    /// Texts of `grpc-message` that were not known the last time, by number; none unless they are kept.
    pub errors: Vec<String>,
}

/// What is kept of rows that were taken.
#[derive(Clone, Debug, Default)]
pub struct EmittedRpcs {
    /// How many were taken: the tables begin with the row of this number.
    rows: u32,
    /// Those that may still change, by their number, with the one that they were taken with.
    open: HashMap<u32, (u32, Whole), foldhash::fast::RandomState>,
    /// Rows that were emitted while they could change, and that are final now.
    settled: Vec<(u32, Whole)>,
    /// The numbers that methods have at the end of a run by those of the rows that were taken; empty where they are the
    /// same.
    pub renumbered: Vec<u32>,
    /// How many methods and texts of `grpc-message` were emitted.
    pub(super) emitted_names: [usize; 2],
}

impl EmittedRpcs {
    /// Where in the tables the row of a number is; `None` when it was taken.
    #[inline]
    pub fn place(&self, number: u32) -> Option<usize> {
        number.checked_sub(self.rows).map(|place| place as usize)
    }

    /// Keeps the RPC of a row that is emitted at a position although it may still change.
    pub(super) fn keep_open(&mut self, place: usize, position: usize, whole: Whole) {
        self.open.insert(self.number(place), (self.number(position), whole));
    }

    /// Notes that the first `rows` rows of the tables were emitted.
    pub(super) fn advance(&mut self, rows: usize) {
        self.rows = self.number(rows);
    }

    /// The number of the row at a place in the tables.
    #[inline]
    pub fn number(&self, place: usize) -> u32 {
        self.rows.wrapping_add(place as u32)
    }

    /// The place that the row of a number has among all rows, as far as it was taken.
    pub(crate) fn taken_as(&self, number: u32) -> u32 {
        self.open.get(&number).map_or(number, |&(taken, _)| taken)
    }

    /// Writes what an RPC carried.
    #[cold]
    pub(crate) fn write_sizes(&mut self, number: u32, carried: RpcSizesRow) {
        if let Some((_, Whole { sizes, .. })) = self.open.get_mut(&number) {
            *sizes = RpcSizesRow { settled: sizes.settled, ..carried };
        }
    }

    /// Writes how an RPC ended: its status, protocol, flags and last packet.
    #[cold]
    pub(crate) fn write_row(&mut self, number: u32, ended: &RpcRow, budget: &Budget) {
        if let Some((_, whole)) = self.open.get_mut(&number) {
            whole.row.status = ended.status;
            whole.row.status_source = ended.status_source;
            whole.row.http_status = ended.http_status;
            whole.row.grpc_message = ended.grpc_message;
            whole.row.protocol = ended.protocol;
            whole.row.flags |= ended.flags;
            whole.row.last_packet = ended.last_packet;
            whole.row.duration_ns = i64::try_from(budget.total()).unwrap_or(i64::MAX);
            whole.budget = *budget;
        }
    }

    /// Notes that bytes of an RPC that is over are not in the capture.
    #[cold]
    pub(crate) fn touch_gap(&mut self, number: u32) {
        if let Some((_, whole)) = self.open.get_mut(&number) {
            whole.row.flags |= rpc_flag::TOUCHES_GAP;
        }
    }

    /// Makes the row of an RPC final.
    #[cold]
    pub(crate) fn settle(&mut self, number: u32) {
        if let Some((taken, mut whole)) = self.open.remove(&number) {
            whole.sizes.settled = 1;
            self.settled.push((taken, whole));
        }
    }

    /// Takes the rows that were emitted while they could change, and that are final now; with their numbers, ascending.
    pub fn take_settled(&mut self) -> (Vec<u32>, Rows) {
        self.settled.sort_unstable_by_key(|&(number, _)| number);
        let (mut rpcs, mut sizes) = (Rpcs::default(), RpcSizes::default());
        let (mut numbers, mut rows) = (Vec::new(), Rows::default());
        for (number, whole) in self.settled.drain(..) {
            numbers.push(number);
            rpcs.push(whole.row);
            sizes.push(whole.sizes);
            rows.deadlines.push(whole.deadline);
            rows.budgets.push(whole.budget);
        }
        rows.columns = rpcs.take_columns().into_iter().chain(sizes.take_columns()).collect();
        (numbers, rows)
    }

    /// Makes the rows of all RPCs final.
    pub fn settle_all(&mut self) {
        self.settled.extend(self.open.drain().map(|(_, taken)| taken));
    }
}
