//! The RPCs of one connection, and what is counted of them.

use serde::{Deserialize, Serialize};

use std::collections::VecDeque;

use crate::http2::connection::streams::NONE;
use crate::http2::connection::{http2, reading};
use crate::limits;
use crate::state_fields;
use crate::store::budget::{Budget, LossTime};

use super::body_trailers::BodyTrailers;
use super::call::{Call, Gap};
use super::connection_methods::ConnectionMethods;
use super::health::Health;
use super::probe::Before;
use super::repeats::Repeats;
use super::turns::Turns;
use super::unread::Unread;

/// HTTP/2 with gRPC on top.
pub type Http2 = http2::Http2<Grpc>;

/// The parser of HTTP/2 with gRPC on top.
pub type Parser<'p, W> = reading::Parser<'p, Grpc, W>;

/// The RPCs of one connection.
#[derive(Debug, Serialize, Deserialize)]
pub struct Grpc {
    /// The methods of its RPCs.
    pub methods: ConnectionMethods,
    /// The latest missing frames.
    pub gap: Gap,
    /// RPCs seen since the last cut.
    pub rpcs: u32,
    /// RPCs seen before.
    pub rpcs_before: u32,
    /// Of them, those that repeat an earlier attempt.
    pub retries: u32,
    /// RPCs that have rows because another attempt of their call may have begun meanwhile.
    pub hedged: u32,
    /// Requests that repeat a failed one, from the first failure on.
    pub repeats: Option<Box<Repeats>>,
    /// RPCs open now.
    pub open_rpcs: u32,
    /// Most RPCs open at once.
    pub max_open_rpcs: u32,
    /// Streams that are not gRPC.
    pub other_streams: u32,
    /// The client's implementation and version, from its `user-agent`.
    pub client_agent: Option<u32>,
    /// The server's software, from its first `server` or `via`.
    pub server_agent: Option<u32>,
    /// The last answer to a health check.
    pub health: Option<Health>,
    /// Trailers in bodies (gRPC-Web, Connect).
    pub(super) trailers: BodyTrailers,
    /// The budgets of the RPCs that ended, summed.
    pub budget: Budget,
    /// Of them, what losses cost.
    pub loss: LossTime,
    /// When an RPC was last answered with OK, and its method.
    pub last_answer: (i64, u32),
    /// Silences noted.
    pub stalls: u32,
    /// Which side has to send next, and since when.
    pub turns: Turns,
    /// An answer was recorded before its request, and is lost: the capture point mixed the directions.
    pub answered_early: bool,
    /// Complete responses that their clients may not have read, in the order of their ends.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::UNREAD_RESPONSES }, _, _>")]
    pub(super) unread: VecDeque<Unread>,
    /// RPCs that are over, whose clients had not acknowledged the response when another took their place.
    #[serde(deserialize_with = "state_fields::at_most::<{ limits::UNACKNOWLEDGED_RESPONSES }, _, _>")]
    pub(super) unacknowledged: VecDeque<Call>,
    /// What was begun before the capture.
    pub(super) late: Before,
}

impl Default for Grpc {
    fn default() -> Self {
        Self {
            methods: ConnectionMethods::default(),
            gap: Gap { time: -1, count: 0 },
            rpcs: 0,
            rpcs_before: 0,
            retries: 0,
            hedged: 0,
            repeats: None,
            open_rpcs: 0,
            max_open_rpcs: 0,
            other_streams: 0,
            client_agent: None,
            server_agent: None,
            health: None,
            trailers: BodyTrailers::default(),
            budget: Budget::default(),
            loss: LossTime::default(),
            last_answer: (-1, NONE),
            stalls: 0,
            turns: Turns::default(),
            answered_early: false,
            unread: VecDeque::new(),
            unacknowledged: VecDeque::new(),
            late: Before::default(),
        }
    }
}
