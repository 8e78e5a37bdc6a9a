//! What could not be decoded.

use crate::limits;

use super::{Cell, Column, take_first};

table!(
    /// Decode trouble as data; bounded by `limits::PROBLEMS`.
    Problems, ProblemRow {
        time_ns: i64, connection: u32, packet: u32, layer: u8, kind: u32, broken_by: u8,
    }
);

/// No connection, in a problem row.
pub const NO_CONNECTION: u32 = u32::MAX;

/// No side is known to have caused it, in a problem row.
pub const NOBODY: u8 = 2;

/// The layer a problem belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layer {
    /// Link, network and tunnel headers.
    Packet = 0,
    /// TCP.
    Tcp = 1,
    /// HTTP/2 frames and HPACK.
    Http2 = 2,
    /// gRPC.
    Grpc = 3,
    /// TLS.
    Tls = 4,
}

/// The problems table with its dictionary of texts and its bound.
#[derive(Clone, Debug, Default)]
pub struct ProblemLog {
    /// The rows kept.
    pub rows: Problems,
    /// Texts by `kind`.
    pub kinds: Vec<&'static str>,
    /// Problems by `kind`, beyond the rows kept too.
    pub counts: Vec<u64>,
}

impl ProblemLog {
    /// Notes one problem; its text becomes the row's `kind`.
    pub fn note(&mut self, text: &'static str, row: ProblemRow) {
        let kind = self.kinds.iter().position(|&known| known == text).unwrap_or_else(|| {
            self.kinds.push(text);
            self.counts.push(0);
            self.kinds.len() - 1
        });
        if let Some(count) = self.counts.get_mut(kind) {
            *count += 1;
        }
        if self.rows.len() < limits::PROBLEMS + limits::ROWS_AHEAD {
            self.rows.push(ProblemRow { kind: kind as u32, ..row });
        }
    }

    /// Notes that a side broke HTTP/2 with what it sent.
    pub fn breach(&mut self, text: &'static str, connection: u32, side: u8, packet: u32, time_ns: i64) {
        let layer = Layer::Http2 as u8;
        self.note(text, ProblemRow { time_ns, connection, packet, layer, kind: 0, broken_by: side });
    }

    /// Takes the problems of another thread in.
    pub fn absorb(&mut self, other: &Self) {
        let rows: Vec<(ProblemRow, &'static str)> = self.texts().chain(other.texts()).collect();
        let counts = |log: &Self| log.kinds.iter().copied().zip(log.counts.iter().copied()).collect::<Vec<_>>();
        let counted = [counts(self), counts(other)].concat();
        *self = Self::default();
        for (row, text) in rows {
            self.note(text, row);
        }
        self.counts.fill(0);
        for (text, count) in counted {
            let kind = self.kinds.iter().position(|&known| known == text);
            match kind.and_then(|kind| self.counts.get_mut(kind)) {
                Some(sum) => *sum += count,
                None => {
                    self.kinds.push(text);
                    self.counts.push(count);
                }
            }
        }
    }

    fn texts(&self) -> impl Iterator<Item = (ProblemRow, &'static str)> {
        (0..self.rows.len()).filter_map(|i| {
            let row = self.rows.get(i)?;
            Some((row, *self.kinds.get(row.kind as usize)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_are_bounded_but_counted() {
        let mut log = ProblemLog::default();
        let row = ProblemRow { time_ns: 0, connection: 0, packet: 1, layer: 1, kind: 0, broken_by: NOBODY };
        let most = limits::PROBLEMS + limits::ROWS_AHEAD;
        for packet in 0..(most as u32 + 5) {
            log.note("a", ProblemRow { packet, ..row });
        }
        log.note("b", row);
        assert_eq!(log.rows.len(), most);
        assert_eq!(log.counts, [most as u64 + 5, 1]);
        assert_eq!(log.kinds, ["a", "b"]);
    }
}
