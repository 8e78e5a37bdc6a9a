//! Makes the errors of file headers that cannot be read.

use super::error::OpenErrorKind;
use super::input::Input;

/// Bytes that the longest magic number needs.
pub(super) const MAGIC_LENGTH: usize = 16;
pub(super) const WITH_EDITCAP: &str = "convert it with: editcap -F pcapng FILE FILE.pcapng";

/// For a stream that ends inside the file header.
pub(super) fn header_cut(input: &Input, format: &'static str) -> OpenErrorKind {
    match input.failure() {
        Some(failure) => OpenErrorKind::Unreadable(failure.to_owned()),
        None => OpenErrorKind::HeaderCut { format, bytes: input.waiting().len() },
    }
}

/// For bytes of no known format.
pub(super) fn not_a_capture(bytes: &[u8]) -> OpenErrorKind {
    OpenErrorKind::NotACapture { first_bytes: bytes.iter().copied().take(MAGIC_LENGTH).collect() }
}

/// For a format whose version is not read here.
pub(super) fn unsupported_version(name: &str, major: u16, minor: u16) -> OpenErrorKind {
    OpenErrorKind::Unsupported { format: format!("{name} version {major}.{minor}"), remedy: WITH_EDITCAP }
}
