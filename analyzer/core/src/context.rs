//! What all connections of a run share: options, dictionaries, tables and totals.

use std::sync::Arc;

use hdrhistogram::Histogram;

use crate::budget::Budget;
use crate::grpc::headers::Strings;
use crate::http2::frame::FrameType;
use crate::limits;
use crate::tables::{
    Delays, Failures, Frames, Goaways, Idles, Layer, Messages, Packets, Pings, ProblemLog, RpcSizes, Rpcs, Waits,
};
use crate::tls::{Decryptor, KeyLog};

/// Which tables are wanted; totals and RPCs are always kept.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Keep one row per frame.
    pub frames: bool,
    /// Keep one row per message.
    pub messages: bool,
    /// Keep one row per TCP packet.
    pub packets: bool,
    /// Keep each RPC's sizes and budget, not only their sums.
    pub rpc_rows: bool,
    /// Ports whose connections are HTTP/2 even when nothing else says so.
    pub ports: Vec<u16>,
    /// Secrets that decrypt TLS.
    pub keys: Arc<KeyLog>,
    /// Threads to use; 0 and 1 mean the caller's alone.
    pub threads: u8,
}

/// Sums over the capture.
#[derive(Debug, Default)]
pub struct Totals {
    /// Frames by type; the last entry counts types that RFC 9113 does not define.
    pub frames: [u64; FrameType::KNOWN + 1],
    /// gRPC messages of both directions.
    pub messages: u64,
    /// Streams that are HTTP/2 but not gRPC.
    pub other_streams: u64,
    /// gRPC messages with the compressed flag.
    pub compressed_messages: u64,
}

/// What is kept per method while packets pass by.
#[derive(Debug)]
pub struct MethodStats {
    /// From a request message's last byte to the next response message's first byte on its stream, nanoseconds;
    /// only for the first [`limits::METHOD_HISTOGRAMS`] methods.
    pub turnaround: Option<Histogram<u64>>,
    /// Sum of the turnarounds, nanoseconds, for an exact mean.
    pub turnaround_sum: u64,
    /// The shortest turnaround, nanoseconds.
    pub turnaround_min: u64,
    /// The longest turnaround, nanoseconds.
    pub turnaround_max: u64,
    /// Messages of both directions.
    pub messages: u64,
    /// The RPCs' budgets summed.
    pub budget: Budget,
}

impl MethodStats {
    fn new(histogram: bool) -> Self {
        // three significant digits: quantiles are within 0.1 % of the exact value
        let turnaround = histogram.then(|| Histogram::new(3).ok()).flatten();
        Self {
            turnaround,
            turnaround_sum: 0,
            turnaround_min: u64::MAX,
            turnaround_max: 0,
            messages: 0,
            budget: Budget::default(),
        }
    }

    /// Takes the statistics of the same method from another thread in.
    pub fn absorb(&mut self, other: &Self) {
        if let (Some(histogram), Some(theirs)) = (&mut self.turnaround, &other.turnaround) {
            // the histograms resize themselves: adding cannot fail for values either could hold
            let _ = histogram.add(theirs);
        }
        self.turnaround_sum = self.turnaround_sum.saturating_add(other.turnaround_sum);
        self.turnaround_min = self.turnaround_min.min(other.turnaround_min);
        self.turnaround_max = self.turnaround_max.max(other.turnaround_max);
        self.messages += other.messages;
        self.budget.add_all(&other.budget);
    }

    /// Takes one turnaround in.
    #[inline]
    pub fn add_turnaround(&mut self, ns: u64) {
        if let Some(histogram) = &mut self.turnaround {
            // grows the histogram as needed; fails only beyond what 64 bits of nanoseconds can be
            let _ = histogram.record(ns);
            self.turnaround_sum = self.turnaround_sum.saturating_add(ns);
            self.turnaround_min = self.turnaround_min.min(ns);
            self.turnaround_max = self.turnaround_max.max(ns);
        }
    }
}

/// The shared state.
#[derive(Debug, Default)]
pub struct Context {
    /// What is wanted.
    pub options: Options,
    /// Methods and agents.
    pub strings: Strings,
    /// RPCs so far.
    pub rpcs: Rpcs,
    /// Deadlines of RPCs, nanoseconds, -1 for none; stays empty until the first RPC with a deadline.
    pub deadlines: Vec<i64>,
    /// What RPCs carried, when wanted.
    pub rpc_sizes: RpcSizes,
    /// Budgets of RPCs, when wanted.
    pub rpc_budgets: Vec<Budget>,
    /// Messages so far, when wanted.
    pub messages: Messages,
    /// Frames so far, when wanted.
    pub frames: Frames,
    /// Packets so far, when wanted.
    pub packets: Packets,
    /// Waits so far.
    pub waits: Waits,
    /// How long clients held the ball, by class of length.
    pub idles: Idles,
    /// PING frames, as far as they are kept.
    pub pings: Pings,
    /// GOAWAY frames so far.
    pub goaways: Goaways,
    /// Debug texts of GOAWAY frames.
    pub goaway_reasons: Vec<String>,
    /// First DATA that came late so far.
    pub delays: Delays,
    /// RPCs that ended otherwise than OK so far.
    pub failures: Failures,
    /// Their budgets.
    pub failure_budgets: Vec<Budget>,
    /// Problems so far.
    pub problems: ProblemLog,
    /// Sums.
    pub totals: Totals,
    /// By method number plus one; the first entry is for RPCs whose method is not in the capture.
    pub methods: Vec<Option<Box<MethodStats>>>,
    /// What the TLS connections share; made with the first one.
    pub decryptor: Option<Box<Decryptor>>,
    /// Bytes kept out of order over all connections.
    pub out_of_order_bytes: usize,
}

/// No method, in an RPC row.
pub const NO_METHOD: u32 = u32::MAX;

impl Context {
    /// A context for one run.
    pub fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Notes a problem on a connection.
    #[cold]
    pub fn problem(&mut self, layer: Layer, text: &'static str, connection: u32, packet: u32, time_ns: i64) {
        self.problems.note(layer, text, connection, packet, time_ns);
    }

    /// The number of a GOAWAY's debug text; 0 is the empty one, and every one beyond the limit.
    pub fn goaway_reason(&mut self, text: &str) -> u32 {
        if self.goaway_reasons.is_empty() {
            self.goaway_reasons.push(String::new());
        }
        let known = self.goaway_reasons.iter().position(|known| known == text);
        let number = known.unwrap_or_else(|| {
            if self.goaway_reasons.len() >= limits::GOAWAY_REASONS {
                return 0;
            }
            self.goaway_reasons.push(text.to_owned());
            self.goaway_reasons.len() - 1
        });
        number as u32
    }

    /// The running statistics of a method.
    #[inline]
    pub fn method(&mut self, method: u32) -> &mut MethodStats {
        let index = if method == NO_METHOD { 0 } else { method as usize + 1 };
        if self.methods.len() <= index {
            self.methods.resize_with(index + 1, || None);
        }
        let slot = &mut self.methods[index];
        slot.get_or_insert_with(|| Box::new(MethodStats::new(index < limits::METHOD_HISTOGRAMS)))
    }
}
