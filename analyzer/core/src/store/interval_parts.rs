//! Divides a run that goes on into intervals: what is over is taken, and what is open moves on.

use super::budget::{Budget, LossTime};
use super::context::Context;
use super::strings::UsedNames;
use super::tables::{OtherRequestRow, RpcRow};

/// Where rows go at a cut.
#[derive(Debug)]
pub struct Parts {
    /// What is over.
    pub done: Context,
    /// What is open, as if the capture ended here.
    pub open: Context,
    /// What comes next.
    pub next: Context,
    /// Rows that earlier intervals had, which nobody needs any more.
    pub rest: Option<Box<Context>>,
    /// Rows of `done` that moved to the other two: of RPCs, and of other requests.
    pub moved: [Vec<u32>; 2],
}

/// The time of the RPCs that are open.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenTime {
    /// By cause.
    pub budget: Budget,
    /// Of it, what losses cost.
    pub loss: LossTime,
}

/// The row of an RPC that is open at a cut.
#[derive(Clone, Copy, Debug)]
pub struct OpenRow {
    row: RpcRow,
    deadline: i64,
}

impl Parts {
    /// What `cx` has is done; it is left empty.
    pub fn begin(cx: &mut Context) -> Self {
        let done = cx.take_interval();
        let (open, next) = (done.new_like(), std::mem::take(cx));
        Self { done, open, next, rest: None, moved: Default::default() }
    }

    /// Rows that moved are not done. `next` goes on with what is kept out of order.
    pub fn finish(&mut self) {
        let [rpcs, others] = &mut self.moved;
        rpcs.sort_unstable();
        others.sort_unstable();
        self.done.remove_open_rows(rpcs, others);
        self.next.out_of_order_bytes = self.done.out_of_order_bytes;
        self.next.trailer_bytes = self.done.trailer_bytes;
    }
}

impl Context {
    /// A context without rows that knows the same names by the same numbers.
    pub fn new_like(&self) -> Self {
        let mut context = Self::new(self.options.clone());
        context.strings = self.strings.names();
        context
    }

    /// Takes everything but what connections go on with: names, and counts of bytes that are kept.
    pub fn take_interval(&mut self) -> Self {
        let mut next = Self::new(self.options.clone());
        let names = self.strings.names();
        next.strings = std::mem::replace(&mut self.strings, names);
        (next.out_of_order_bytes, next.trailer_bytes) = (self.out_of_order_bytes, self.trailer_bytes);
        std::mem::replace(self, next)
    }

    /// The row of an RPC, before it ends.
    pub fn open_row(&self, number: u32) -> Option<OpenRow> {
        let row = self.emitted.place(number)?;
        Some(OpenRow { row: self.rpcs.get(row)?, deadline: self.deadlines.get(row).copied().unwrap_or(-1) })
    }

    /// Adds the row of an open RPC of another interval; gives its number here.
    pub fn push_open_row(&mut self, open: &OpenRow) -> u32 {
        let place = self.rpcs.len();
        self.rpcs.push(open.row);
        if open.deadline >= 0 || !self.deadlines.is_empty() {
            self.deadlines.resize(place, -1);
            self.deadlines.push(open.deadline);
        }
        if self.options.rpc_rows {
            self.rpc_sizes.push(Default::default());
            self.rpc_budgets.push(Budget::default());
        }
        self.emitted.number(place)
    }

    /// Adds the row of another open request; gives its number here.
    pub fn push_open_request(&mut self, row: OtherRequestRow) -> u32 {
        self.other_requests.push(row);
        (self.other_requests.len() - 1) as u32
    }

    /// Removes rows of RPCs and of other requests, which went to another interval; `rpcs` and `others` are ascending.
    pub fn remove_open_rows(&mut self, rpcs: &[u32], others: &[u32]) {
        let all = |rows: usize, removed: &[u32]| -> Vec<u32> {
            (0..rows as u32).filter(|row| removed.binary_search(row).is_err()).collect()
        };
        if !rpcs.is_empty() {
            let kept = all(self.rpcs.len(), rpcs);
            for rpc in &mut self.failures.rpc {
                *rpc = kept.binary_search(rpc).map_or(u32::MAX, |place| place as u32);
            }
            let cell = |cells: &[i64], row: u32| cells.get(row as usize).copied().unwrap_or(-1);
            if !self.deadlines.is_empty() {
                self.deadlines = kept.iter().map(|&row| cell(&self.deadlines, row)).collect();
            }
            if self.options.rpc_rows {
                self.rpc_sizes.arrange(&kept);
                self.rpc_budgets = kept.iter().filter_map(|&row| self.rpc_budgets.get(row as usize).copied()).collect();
            }
            self.rpcs.arrange(&kept);
        }
        if !others.is_empty() {
            self.other_requests.arrange(&all(self.other_requests.len(), others));
        }
    }

    /// Gives connections the numbers that `numbers` has in the place of their old ones; others stay.
    pub fn renumber_connections(&mut self, numbers: &[u32]) {
        for connection in self.connection_columns().flatten() {
            *connection = numbers.get(*connection as usize).copied().unwrap_or(*connection);
        }
    }

    /// Makes what is done small, until it is joined with others; `agents` are those to which rows of connections refer.
    pub fn pack(&mut self, agents: impl Iterator<Item = u32>) {
        let mut used = UsedNames::default();
        used.agents.extend(agents.chain(self.failures.answered_by.iter().copied()));
        used.errors.extend(&self.rpcs.grpc_message);
        used.methods.extend(self.method_columns().flatten().map(|method| *method));
        for (stats, method) in self.methods.iter_mut().skip(1).zip(0..) {
            if let Some(stats) = stats {
                stats.pack();
                used.methods.insert(method);
            }
        }
        self.methods.iter_mut().take(1).flatten().for_each(|stats| stats.pack());
        self.strings = self.strings.only(&used);
    }

    /// Unpacks the statistics of methods that `pack` has packed.
    pub fn unpack(&mut self) {
        self.methods.iter_mut().flatten().for_each(|stats| stats.unpack());
    }
}
