//! What servers answer to health checks (grpc/health/v1/health.proto).

use serde::{Deserialize, Serialize};

use crate::at::At;

use super::message::PREFIX_LEN;

/// Stands for no answer.
pub const NONE: u8 = 255;

const METHODS: [&[u8]; 2] = [b"/grpc.health.v1.Health/Watch", b"/grpc.health.v1.Health/Check"];

/// The longest answer in a DATA frame: its prefix, the field's tag, and a status below 128.
pub const LONGEST: usize = PREFIX_LEN as usize + 2;

/// An answer to a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// `HealthCheckResponse.ServingStatus`: 0 is UNKNOWN, 1 SERVING, 2 NOT_SERVING, 3 SERVICE_UNKNOWN.
    pub status: u8,
    /// Its packet.
    pub at: At,
}

/// Whether a method is one of health checks.
pub fn is_check(method: &[u8]) -> bool {
    METHODS.contains(&method)
}

/// The status in a whole answer: field 1, a number; what stands for 0 may be left out.
pub fn status(data: &[u8]) -> Option<u8> {
    match data {
        [0, 0, 0, 0, 0] => Some(0),
        [0, 0, 0, 0, 2, 0x08, status @ 0..=3] => Some(*status),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_status() {
        assert_eq!(status(b"\0\0\0\0\x02\x08\x03"), Some(3));
        assert_eq!(status(b"\0\0\0\0\0"), Some(0));
        assert_eq!(status(b"\0\0\0\0\x02\x08\x04"), None);
        assert_eq!(status(b"\0\0\0\0\x02\x10\x01"), None);
        assert_eq!(status(b"\x01\0\0\0\x02\x08\x01"), None); // compressed
    }

    #[test]
    fn other_methods_check_no_health() {
        assert!(is_check(b"/grpc.health.v1.Health/Watch"));
        assert!(!is_check(b"/shop.v1.Health/Watch"));
    }
}
