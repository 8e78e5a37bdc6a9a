//! Tests of whole exchanges.
