//! Notes on single packets.

/// Notes of the packets table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Note {
    /// Nothing special.
    #[default]
    None = 0,
    /// Bytes that were sent before.
    Retransmission = 1,
    /// Recorded before: the same packet on another interface.
    Duplicate = 2,
    /// Came before the bytes in front of it.
    OutOfOrder = 3,
    /// A keep-alive.
    KeepAlive = 4,
}

/// Names in the order of [`Note`].
pub const NAMES: [&str; 5] = ["", "retransmission", "duplicate", "out-of-order", "keep-alive"];
