//! Trace contexts of requests, kept for as long as header blocks may refer to them.

use serde::{Deserialize, Serialize};

use std::collections::HashSet;

use crate::state_fields;

/// What a `traceparent` names (W3C Trace Context section 3.2); zeros without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The trace-id's first eight octets.
    pub trace_high: u64,
    /// Its last eight.
    pub trace_low: u64,
    /// The parent-id: the caller's span.
    pub span: u64,
}

impl Trace {
    /// Reads a `traceparent`: `00-<32 hex digits>-<16>-<2>`; later versions may go on behind a further dash.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (value, rest) = value.split_at_checked(55)?;
        let well_formed = [2, 35, 52].into_iter().all(|place| value.get(place) == Some(&b'-'));
        let version = parse_hex(value.get(..2)?)?;
        let ends = if version == 0 { rest.is_empty() } else { rest.is_empty() || rest.first() == Some(&b'-') };
        parse_hex(value.get(53..)?)?;
        let trace = Self {
            trace_high: parse_hex(value.get(3..19)?)?,
            trace_low: parse_hex(value.get(19..35)?)?,
            span: parse_hex(value.get(36..52)?)?,
        };
        let valid = (trace.trace_high | trace.trace_low) != 0 && trace.span != 0;
        (well_formed && version != 0xff && ends && valid).then_some(trace)
    }
}

/// Lower-case hexadecimal digits, at most sixteen.
fn parse_hex(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, &digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(value))
    })
}

/// How many values are kept: a field that refers to an older one counts as a request without. Every request has its
/// own, and an HPACK table of 4,096 octets holds fewer than 50; this is for thousands of connections.
const KEPT: u32 = 1 << 16;

/// The values seen last. A header class refers to one by number, so that it stays small.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Traces {
    #[serde(deserialize_with = "state_fields::at_most::<{ KEPT as usize }, _, _>")]
    kept: Vec<Trace>,
    seen: u32,
}

impl Traces {
    /// Keeps one; its number.
    pub fn keep(&mut self, trace: Trace) -> u32 {
        let number = self.seen;
        match self.kept.get_mut((number % KEPT) as usize) {
            Some(place) => *place = trace,
            None => self.kept.push(trace),
        }
        self.seen = number.wrapping_add(1);
        number
    }

    /// Forgets the values whose numbers are not `used`.
    pub fn forget_unused(&mut self, used: &HashSet<u32>) {
        let places: HashSet<u32> = used.iter().map(|number| number % KEPT).collect();
        for (place, trace) in (0..).zip(&mut self.kept) {
            if !places.contains(&place) {
                *trace = Trace::default();
            }
        }
    }

    /// The value of a number; none when too many came behind it.
    pub fn get(&self, number: u32) -> Trace {
        let is_kept = self.seen.wrapping_sub(number) <= KEPT;
        let place = self.kept.get((number % KEPT) as usize).filter(|_| is_kept);
        place.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn traceparents() {
        let trace =
            Trace { trace_high: 0x0af7_6519_16cd_43dd, trace_low: 0x8448_eb21_1c80_319c, span: 0xb7ad_6b71_6920_3331 };
        assert_eq!(Trace::parse(VALUE), Some(trace));
        assert_eq!(Trace::parse(&[b"01", &VALUE[2..], b"-more"].concat()), Some(trace));
        for wrong in [
            [VALUE, b"-more"].concat(),
            [b"ff", &VALUE[2..]].concat(),
            [b"01", &VALUE[2..], b"more"].concat(),
            VALUE[..54].to_vec(),
            VALUE.to_ascii_uppercase(),
            b"00-00000000000000000000000000000000-b7ad6b7169203331-01".to_vec(),
            b"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01".to_vec(),
            b"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01".to_vec(),
            b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x".to_vec(),
            vec![],
        ] {
            assert_eq!(Trace::parse(&wrong), None, "{}", String::from_utf8_lossy(&wrong));
        }
    }

    #[test]
    fn values_to_which_nothing_refers_are_forgotten() {
        let mut traces = Traces::default();
        let trace = |span| Trace { trace_high: 1, trace_low: 2, span };
        for span in 0..10 {
            traces.keep(trace(span));
        }
        traces.forget_unused(&HashSet::from([3]));
        assert_eq!([2, 3, 9].map(|number| traces.get(number)), [Trace::default(), trace(3), Trace::default()]);
        assert_eq!(traces.keep(trace(10)), 10);
    }

    #[test]
    fn the_last_values_are_kept() {
        let mut traces = Traces::default();
        let trace = |span| Trace { trace_high: 1, trace_low: 2, span };
        for span in 0..u64::from(KEPT) + 10 {
            assert_eq!(u64::from(traces.keep(trace(span))), span);
        }
        assert_eq!(traces.get(9), Trace::default());
        assert_eq!(traces.get(10), trace(10));
        assert_eq!(traces.get(KEPT + 9), trace(u64::from(KEPT) + 9));
    }
}
