//! The decoding core of grpcdiag: capture bytes to columnar tables.
//!
//! A layer knows the layers below it and never one above: `capture_file`, `packet`, `tcp`, `tls`, `http1`, `http2`, `grpc`, `waits`,
//! `connection`, `run`. All write to `store`. `processes` reads another kind of file, and `rows` writes tables.
//! Two other crates stand on this one: `parquet` writes those rows as Parquet, and `python` is the face towards Python.

pub mod at;
pub mod capture_file;
pub mod clock_steps;
pub mod connection;
pub mod grpc;
pub mod http1;
pub mod http2;
pub mod limits;
pub mod packet;
pub mod packet_order;
pub mod processes;
pub mod rows;
pub mod run;
pub mod scrub;
pub mod state_fields;
pub mod store;
pub mod tcp;
pub mod tls;
pub mod waits;
