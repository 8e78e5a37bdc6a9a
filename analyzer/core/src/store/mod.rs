//! What a run writes to, and what every layer may use: tables, dictionaries, sums, and the causes of time.

pub mod budget;
pub mod context;
pub mod disorder;
pub mod durations;
pub mod emitted_rpcs;
pub mod interval_parts;
pub mod largest;
pub mod methods;
pub mod options;
pub mod row_selection;
pub mod rpc_order;
pub mod spill;
pub mod strings;
mod table_list;
pub mod tables;
pub mod traces;
