//! One IP datagram being put together from its fragments.

use crate::limits::MAX_FRAGMENT_RANGES;

use super::bytes::View;
use super::outcome::Problem;
use super::outer_layers::{Context, Network};

/// The largest IP payload: fragment offsets reach no further (RFC 791, RFC 8200 section 4.5).
pub(super) const MAX_LENGTH: u32 = 65_535;

/// One fragment of an IPv4 or IPv6 datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment<'a> {
    /// The part of the datagram's payload that it carries.
    pub view: View<'a>,
    pub network: Network,
    pub context: Context,
    /// What the payload is. In IPv6 only the first fragment's counts.
    pub protocol: u8,
    /// The datagram's identification.
    pub id: u32,
    /// Where it belongs within the payload, in bytes.
    pub offset: u32,
    /// It is not the last one.
    pub more: bool,
}

impl Fragment<'_> {
    /// Where it belongs in the payload. All but the last carry a multiple of eight bytes: offsets count eights.
    pub fn extent(&self) -> Result<(u32, u32), Problem> {
        let length = self.view.wire_len;
        let end = self.offset.saturating_add(length);
        let partial = self.more && !length.is_multiple_of(8);
        if length == 0 || partial || end > MAX_LENGTH {
            return Err(Problem::FragmentExtent);
        }
        Ok((self.offset, end))
    }
}

/// Fragments of one datagram, by where they belong. Positions are byte offsets into the IP payload on the wire.
#[derive(Debug)]
pub(super) struct Datagram {
    network: Network,
    context: Context,
    protocol: u8,
    data: Vec<u8>,
    /// Ranges received, ascending, neither overlapping nor touching.
    covered: Vec<(u32, u32)>,
    /// The payload's length, once the last fragment is here.
    total: Option<u32>,
    /// Where the first byte is that no fragment was captured with (the snapshot length cut it).
    readable_end: u32,
}

/// What adding a fragment did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It filled a gap.
    Stored,
    /// Nothing new was in it.
    Duplicate,
    /// It overlapped others in part; what was there first was kept.
    Overlapped,
}

impl Datagram {
    /// An empty datagram for the first of its fragments to be seen.
    pub fn new(fragment: &Fragment<'_>) -> Self {
        Self {
            network: fragment.network,
            context: fragment.context,
            protocol: fragment.protocol,
            data: Vec::new(),
            covered: Vec::new(),
            total: None,
            readable_end: MAX_LENGTH,
        }
    }

    /// What the IP header of the first fragment says.
    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn context(&self) -> Context {
        self.context
    }

    /// The protocol of the payload.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The payload, as far as it was captured without a hole.
    pub fn view(&self) -> View<'_> {
        let total = self.total.unwrap_or(0);
        let end = self.readable_end.min(total) as usize;
        let whole = View::new(self.data.get(..end).unwrap_or(&self.data), total);
        whole.limit(total)
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.data.capacity()
    }

    pub fn is_complete(&self) -> bool {
        self.total.is_some_and(|total| self.covered.as_slice() == [(0, total)])
    }

    /// Adds a fragment that belongs at `start..end`. After an error the datagram is of no more use.
    pub fn add(&mut self, fragment: &Fragment<'_>, (start, end): (u32, u32)) -> Result<Added, Problem> {
        self.check_total(end, fragment.more)?;
        if self.covers(start, end) && self.is_repeat(fragment, start) {
            return Ok(Added::Duplicate);
        }
        let overlaps = self.covered.iter().any(|&(from, to)| from < end && start < to);
        if overlaps && !fragment.network.source.is_ipv4() {
            return Err(Problem::FragmentOverlap);
        }
        if start == 0 {
            (self.network, self.protocol) = (fragment.network, fragment.protocol);
        }
        self.copy(fragment, start, end);
        self.cover(start, end)?;
        Ok(if overlaps { Added::Overlapped } else { Added::Stored })
    }

    /// All fragments must agree on where the datagram ends.
    fn check_total(&mut self, end: u32, more: bool) -> Result<(), Problem> {
        let beyond = self.covered.last().is_some_and(|&(_, last)| last > end);
        match self.total {
            Some(total) if end > total || (!more && end != total) => Err(Problem::FragmentConflict),
            None if !more && beyond => Err(Problem::FragmentConflict),
            None if !more => {
                self.total = Some(end);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn covers(&self, start: u32, end: u32) -> bool {
        self.covered.iter().any(|&(from, to)| from <= start && end <= to)
    }

    /// Whether a covered fragment brings the bytes that are there already. For IPv4 it does not matter: they are kept.
    fn is_repeat(&self, fragment: &Fragment<'_>, start: u32) -> bool {
        let held = self.data.get(start as usize..).unwrap_or(&[]);
        fragment.network.source.is_ipv4() || held.starts_with(fragment.view.bytes)
    }

    /// Copies the fragment's bytes into the gaps between what is covered.
    fn copy(&mut self, fragment: &Fragment<'_>, start: u32, end: u32) {
        if self.data.len() < end as usize {
            self.data.resize(end as usize, 0);
        }
        let captured_end = start.saturating_add(fragment.view.bytes.len() as u32);
        if captured_end < end {
            self.readable_end = self.readable_end.min(captured_end);
        }
        let mut cursor = start;
        for &(from, to) in &self.covered {
            copy_range(&mut self.data, fragment.view.bytes, start, cursor, from.min(end));
            cursor = cursor.max(to);
        }
        copy_range(&mut self.data, fragment.view.bytes, start, cursor, end);
    }

    /// Notes that a range is here, and joins it with those it touches.
    fn cover(&mut self, start: u32, end: u32) -> Result<(), Problem> {
        let first = self.covered.partition_point(|&(_, to)| to < start);
        let behind = self.covered.partition_point(|&(from, _)| from <= end);
        let mut joined = (start, end);
        for &(from, to) in self.covered.get(first..behind).unwrap_or(&[]) {
            joined = (joined.0.min(from), joined.1.max(to));
        }
        self.covered.splice(first..behind, [joined]);
        if self.covered.len() > MAX_FRAGMENT_RANGES {
            return Err(Problem::FragmentConflict);
        }
        Ok(())
    }
}

/// Copies `from..to` (payload offsets) out of a fragment that starts at `start`, as far as it was captured.
fn copy_range(data: &mut [u8], fragment: &[u8], start: u32, from: u32, to: u32) {
    let captured_to = to.min(start.saturating_add(fragment.len() as u32));
    if from >= captured_to {
        return;
    }
    let source = fragment.get((from - start) as usize..(captured_to - start) as usize);
    let target = data.get_mut(from as usize..captured_to as usize);
    if let (Some(source), Some(target)) = (source, target) {
        target.copy_from_slice(source);
    }
}
