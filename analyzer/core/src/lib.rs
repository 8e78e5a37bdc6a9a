//! The decoding core of grpcdiag: capture bytes to columnar tables.
//!
//! Layers know the one below and never the one above: `capture_file` -> `packet` -> `tcp` -> (`tls`) -> `http2` -> `grpc`,
//! driven by `pipeline`. Only this file and `python` know Python.

pub mod at;
mod batch;
pub mod budget;
pub mod capture_file;
pub mod clock_steps;
pub mod context;
pub mod durations;
pub mod grpc;
pub mod http2;
pub mod limits;
pub mod merge;
pub mod methods;
pub mod packet;
pub mod pipeline;
mod python;
pub mod scrub;
pub mod settle;
mod shards;
pub mod spill;
pub mod strings;
pub mod tables;
pub mod tcp;
pub mod threads;
pub mod tls;
pub mod waits;

use pyo3::prelude::*;

/// The Python module `grpcdiag.analyzer._core`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    python::register(module)
}
