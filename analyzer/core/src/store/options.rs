//! What a run keeps, and how it reads.

use std::sync::Arc;

use crate::limits;

use super::row_selection::RowSelection;
use super::spill::Spill;

/// When connections are packed.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// Connections of a thread that stay as they are, however silent.
    pub awake: usize,
    /// Packets of the capture behind the last one of a connection that is packed.
    pub silence: u32,
}

impl Default for Packing {
    fn default() -> Self {
        Self { awake: limits::AWAKE_CONNECTIONS, silence: limits::SILENT_PACKETS }
    }
}

/// Which tables are wanted; totals and RPCs are always kept.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Keep one row per frame.
    pub frames: bool,
    /// Keep one row per message.
    pub messages: bool,
    /// Keep one row per TCP packet.
    pub packets: bool,
    /// Also of packets of connections that have no row themselves.
    pub unlisted_packets: bool,
    /// Keep a row of every RPC with its sizes and budget, not only sums and the RPCs that serve as examples.
    pub rpc_rows: bool,
    /// Mark the rows that would also be there without `rpc_rows`, `slowest` and `sampled`.
    pub marks_examples: bool,
    /// RPCs with a row and its budget for being the longest of all, whatever their ends, where not all have rows.
    pub slowest: usize,
    /// RPCs with a row and its budget as a uniform sample of all, whatever their ends, where not all have rows.
    pub sampled: usize,
    /// Count each method's durations by classes.
    pub distributions: bool,
    /// The only packets and frames whose rows are wanted; `None` for all.
    pub selection: Option<Arc<RowSelection>>,
    /// Keep one row per interval in which a side had to act.
    pub acts: bool,
    /// Keep all texts of `grpc-message`.
    pub errors: bool,
    /// Times are as recorded, whatever the hosts' timestamps say of the capture's clock.
    pub file_times: bool,
    /// Read no more than a scrubbed copy holds: it has no messages over HTTP/1.1.
    pub as_scrubbed: bool,
    /// Ports whose connections are HTTP/2 even when nothing else says so.
    pub ports: Vec<u16>,
    /// Names of methods whose own were sent before the capture, by the numbers, from 1, by which they are told apart.
    pub labels: Vec<(u32, String)>,
    /// The run is cut, and rows of open RPCs move to the next interval.
    pub resumes: bool,
    /// When connections that are silent are packed, if the run is not cut.
    pub packing: Packing,
    /// Threads to use; 0 and 1 mean the caller's alone.
    pub threads: u8,
    /// Where durations go that are more than memory should hold.
    pub spill: Option<Arc<Spill>>,
}

impl Options {
    /// Whether rows of packets, frames or messages are taken while the run goes on, all from one thread.
    pub fn streams(&self) -> bool {
        (self.frames || self.packets) && self.selection.is_none() || self.messages
    }

    /// Whether segments have to be read in the order of the capture, because rows are given in that of reading.
    pub fn reads_in_order(&self) -> bool {
        self.acts || self.resumes && (self.rpc_rows || self.streams())
    }

    /// Whether rows of RPCs are sorted when they are taken.
    pub fn sorts_rpcs(&self) -> bool {
        self.rpc_rows && !self.resumes
    }

    /// Whether rows of RPCs have their budgets.
    pub fn keeps_budgets(&self) -> bool {
        self.rpc_rows || self.slowest > 0 || self.sampled > 0
    }

    /// Whether each RPC's budget up to the end of its request is kept: with both packets and RPCs, which is what
    /// captures of both ends are matched by.
    pub fn keeps_requests(&self) -> bool {
        self.rpc_rows && self.packets && !self.resumes && self.selection.is_none()
    }
}
