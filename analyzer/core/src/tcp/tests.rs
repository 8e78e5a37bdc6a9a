//! Tests of connections.
