//! One run over a capture: each packet is dissected, its segment is routed to its connection, and connections are divided
//! among threads. The result does not depend on the number of threads.

mod batch;
pub mod connection_opening;
mod finished;
pub mod icmp_errors;
pub mod in_order;
pub mod interval;
mod join_rows;
pub mod live;
pub mod live_reader;
pub mod merge;
mod numbers;
pub mod order_rows;
pub mod packed;
pub mod pipeline;
pub mod questions;
pub mod replay;
pub mod route;
pub mod router;
pub mod saved;
pub mod shard;
mod shards;
#[cfg(test)]
mod tests;
pub mod threads;
