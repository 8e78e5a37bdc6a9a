//! The order in which the packets of a capture were read, which Python hands on from one run to the next.

use grpcdiag_core::packet_order::Numbers;
use pyo3::prelude::*;

/// The numbers in the file of packets that were read in the order of their times.
#[pyclass(module = "grpcdiag.analyzer._core", frozen)]
pub(super) struct PacketOrder(pub(super) Numbers);
