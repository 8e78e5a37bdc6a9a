//! Lists the tables that a run ends with, once for all that has to be done with each of them.

use super::context::Context;

/// Each table has a column `connection`; in brackets stands the column that refers to methods, if there is one.
macro_rules! list_tables {
    ($($table:ident [$($method:ident)?],)*) => {
        impl Context {
            /// The columns that refer to connections.
            pub fn connection_columns(&mut self) -> impl Iterator<Item = &mut Vec<u32>> {
                [$(&mut self.$table.connection,)* &mut self.problems.rows.connection].into_iter()
            }

            /// The columns that refer to methods.
            pub fn method_columns(&mut self) -> impl Iterator<Item = &mut Vec<u32>> {
                [$($(&mut self.$table.$method,)?)*].into_iter()
            }

            /// Rows of all tables.
            pub fn rows(&self) -> usize {
                let tables = [$(self.$table.len(),)* self.failures.len(), self.problems.rows.len()];
                tables.into_iter().sum()
            }

            /// Bytes that rows, names and packed statistics take, about.
            pub fn bytes(&self) -> usize {
                let tables = [$(self.$table.bytes(),)* self.failures.bytes(), self.rpc_sizes.bytes()];
                let budgets = size_of_val(self.failure_budgets.as_slice()) + size_of_val(self.rpc_budgets.as_slice());
                let methods = self.methods.iter().flatten().map(|stats| stats.bytes());
                tables.into_iter().chain(methods).sum::<usize>() + budgets + self.strings.bytes()
            }

            /// Moves the rows of `other` to the end. The compiler asks here for each new field of a context: a table belongs to
            /// the list below, and all else to what the run does with it.
            pub fn append_tables(&mut self, other: &mut Self) {
                let Self {
                    $($table,)*
                    // with rows of those tables, and without references of their own
                    rpc_sizes, rpc_budgets, request_budgets, request_ends, failures, failure_budgets,
                    // with references that are translated before, or summed
                    options: _, strings: _, deadlines: _, emitted: _, acts_left_out: _, goaway_reasons: _, problems: _,
                    totals: _, methods: _, slowest: _, sampled: _, out_of_order_bytes: _, trailer_bytes: _, is_shown: _,
                    // in the order of the capture: one thread alone writes them, and no run that is cut
                    messages: _, rpc_order: _, disorder: _,
                    // the same, unless only some have rows
                    frames, packets, selected,
                } = other;
                $(self.$table.append($table);)*
                self.rpc_sizes.append(rpc_sizes);
                self.rpc_budgets.append(rpc_budgets);
                self.request_budgets.append(request_budgets);
                self.request_ends.append(request_ends);
                self.frames.append(frames);
                self.packets.append(packets);
                self.selected.append(selected);
                self.failures.append(failures);
                self.failure_budgets.append(failure_budgets);
            }
        }
    };
}

list_tables! {
    rpcs [method],
    acts [method],
    waits [method],
    record_waits [method],
    records [],
    idles [],
    stalls [],
    unanswered [],
    undelivered [],
    closings [],
    open_rpcs [method],
    pings [],
    goaways [],
    delays [method],
    other_requests [path],
    queues [],
    repeats [method],
    connection_methods [method],
}
