//! What is known of a connection that speaks HTTP/1.1.

use serde::{Deserialize, Serialize};

use std::collections::VecDeque;

use crate::at::At;
use crate::http1::base64::Base64;
use crate::http1::reader::Reader;
use crate::limits;
use crate::state_fields;

/// The messages of both directions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::http2) struct Http1 {
    #[serde(deserialize_with = "state_fields::side")]
    pub(in crate::http2) client: usize,
    pub(in crate::http2) directions: [Direction; 2],
    /// Requests whose responses are not whole, oldest first.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::HTTP1_REQUESTS }, _, _>")]
    pub(in crate::http2) open: VecDeque<Exchange>,
    /// Requests that were read.
    pub(in crate::http2) followed: u32,
    /// A request was seen: a response to an earlier one cannot come any more.
    pub(in crate::http2) begun: bool,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::http2) struct Direction {
    pub(in crate::http2) reader: Reader,
    /// Where the message begins.
    pub(in crate::http2) first: At,
    pub(in crate::http2) message: Message,
    /// The capture begins inside an HTTP/1.1 message, which ends where a packet begins with a head.
    pub(in crate::http2) begun_inside: bool,
}

/// What is behind a head.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(in crate::http2) struct Message {
    /// The stream that it is to the protocol on top, 0 for none.
    pub(in crate::http2) stream: u32,
    /// Its body is base64.
    pub(in crate::http2) base64: Option<Base64>,
    /// It answers the oldest open request.
    pub(in crate::http2) is_answer: bool,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(in crate::http2) struct Exchange {
    pub(in crate::http2) stream: u32,
    /// The response to HEAD has no body.
    pub(in crate::http2) is_head: bool,
}
