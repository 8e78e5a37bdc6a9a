//! Follows TCP connections (RFC 9293): puts bytes in order, and estimates what each sender could send.

pub mod arrivals;
pub mod closing;
pub mod congestion;
pub mod connection;
pub mod duplicate;
pub mod events;
pub mod half;
pub mod held_path;
pub mod late_acks;
pub mod note;
pub mod path_delay;
pub mod queue;
pub mod reassembly;
pub mod rtt;
pub mod send_queue;
pub mod sent_again;
pub mod shut_window;
pub mod transport;
pub mod unanswered;
pub mod undelivered;
