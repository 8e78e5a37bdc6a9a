//! Decides from DATA alone whether a stream is gRPC: messages show in how the frames are cut (PROTOCOL-HTTP2.md, "Length-
//! Prefixed-Message").

use serde::{Deserialize, Serialize};

use std::collections::HashMap;

use crate::limits;
use crate::state_fields;

use super::headers::Hidden;
use super::message::PREFIX_LEN;

/// What is known of a stream that was opened before the capture.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Probe {
    /// By side: payload bytes up to the end of a message that began with a DATA frame; 0 for none.
    pub(super) to_end: [u64; 2],
    /// By side: message boundaries seen.
    boundaries: [u8; 2],
    /// It is followed, has ended, or is not gRPC.
    pub(super) settled: bool,
}

/// Streams and methods of one connection from before the capture.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Before {
    /// Streams that were opened before it.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::LATE_STREAMS }, _, _>")]
    pub(super) streams: HashMap<u32, Probe, foldhash::fast::RandomState>,
    /// Methods whose names were sent before it: the table entries that tell them, and their numbers.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::METHOD_LABELS }, _, _>")]
    pub(super) labels: Vec<([u64; 2], u32)>,
    /// The unknown fields of the latest trailers behind one response message: table entries, and how many.
    pub(super) usual_end: (Hidden, u32),
}

/// What a DATA frame says about message boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// It holds whole messages from its first octet to its last.
    Whole,
    /// It begins like a message that needs this many bytes more.
    Begins(u64),
    /// Neither is known.
    Unknown,
}

/// Walks over the messages in a DATA frame of `length` octets as far as `octets`, its first ones, go.
fn cut_of(octets: &[u8], length: u32) -> Cut {
    let (mut at, length) = (0_u64, u64::from(length));
    while at < length {
        let prefix = usize::try_from(at).ok().and_then(|at| octets.get(at..)).and_then(|rest| rest.first_chunk::<5>());
        let Some(&[flag, a, b, c, d]) = prefix else { return Cut::Unknown };
        let message = u32::from_be_bytes([a, b, c, d]);
        // a run of zeros is more often a payload's than a run of empty messages
        if flag > 1 || (message == 0 && length > u64::from(PREFIX_LEN)) {
            return Cut::Unknown;
        }
        at += u64::from(PREFIX_LEN) + u64::from(message);
    }
    if at == length { Cut::Whole } else { Cut::Begins(at - length) }
}

impl Probe {
    /// A probe of a stream that is looked at no more.
    pub(super) fn settled() -> Self {
        Self { settled: true, ..Self::default() }
    }

    /// Takes a DATA frame in; whether its first octet is proved to begin a message, by itself or by what came before.
    pub(super) fn data(&mut self, side: usize, octets: &[u8], length: u32, limit: u8) -> bool {
        let known = self.boundaries[side] > 0 && self.to_end[side] == 0;
        let left = std::mem::take(&mut self.to_end[side]);
        if left > u64::from(length) {
            self.to_end[side] = left - u64::from(length);
            return false;
        }
        if left == u64::from(length) {
            self.boundaries[side] = self.boundaries[side].saturating_add(1);
            return false;
        }
        let cut = if left == 0 { cut_of(octets, length) } else { Cut::Unknown };
        match cut {
            Cut::Whole => self.boundaries[side] = self.boundaries[side].saturating_add(1),
            Cut::Begins(more) => self.to_end[side] = more,
            Cut::Unknown => self.boundaries[side] = 0,
        }
        let enough = self.boundaries[side] >= limit;
        enough && (cut == Cut::Whole || (known && cut != Cut::Unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u32) -> Vec<u8> {
        [&[0_u8][..], &length.to_be_bytes(), &vec![7; length as usize]].concat()
    }

    #[test]
    fn frames_of_whole_messages_prove_boundaries() {
        let three = [message(3), message(1), message(20)].concat();
        assert_eq!(cut_of(&three, three.len() as u32), Cut::Whole);
        assert_eq!(cut_of(&message(0), 5), Cut::Whole, "an empty message alone");
        assert_eq!(cut_of(&message(100)[..50], 50), Cut::Begins(55));
        assert_eq!(cut_of(&message(100)[..20], 105), Cut::Whole, "its prefix suffices");
        assert_eq!(cut_of(&three[..9], three.len() as u32), Cut::Unknown, "the second prefix is not there yet");
        assert_eq!(cut_of(&[0; 50], 50), Cut::Unknown, "zeros are no messages");
        assert_eq!(cut_of(&[7; 50], 50), Cut::Unknown);
    }

    #[test]
    fn a_message_over_frames_proves_the_boundary_behind_it() {
        let (mut probe, long) = (Probe::default(), message(40_000));
        assert!(!probe.data(0, &long[..16_384], 16_384, 1));
        assert!(!probe.data(0, &long[16_384..32_768], 16_384, 1));
        assert!(!probe.data(0, &long[32_768..], 7_237, 1), "its beginning is over, the next one is not there");
        assert!(probe.data(0, &long[..16_384], 16_384, 1));
    }

    #[test]
    fn a_false_beginning_is_found_out() {
        let mut probe = Probe::default();
        assert!(!probe.data(1, &[0, 0, 0, 100, 0, 9, 9], 7, 2), "looks like a message of 25,600 bytes");
        assert!(!probe.data(1, &message(30_000)[..16_384], 16_384, 2));
        assert!(!probe.data(1, &[9; 16_000], 16_000, 2), "which would have ended in the middle of this frame");
        assert!(!probe.data(1, &message(3), 8, 2));
        assert!(probe.data(1, &message(5), 10, 2));
    }
}
