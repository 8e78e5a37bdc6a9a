//! Waits: intervals in which a side owed bytes and sent none.
//!
//! gRPC's five-byte prefix says how many bytes of a message are still to come, so silence inside a message is a
//! blocked writer. A cause is named only when what was binding at the stop and what came right before the sender
//! resumed agree; everything else is unexplained.

mod cause;
mod held_back;
mod layers;
mod release;
mod row;
mod stall;
mod stop;
mod wait;

pub use held_back::{began, may_be_held};
pub use layers::Layers;
pub use stall::{note as note_stall, was_silent};
pub use stop::{Stop, stopped};
pub use wait::{not_judged, resumed};
