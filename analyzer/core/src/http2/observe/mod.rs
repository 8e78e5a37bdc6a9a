//! What a sender does: how it packs its frames, when it sends PINGs, and which implementation it is.

pub mod habits;
pub mod implementation;
pub mod policy;
