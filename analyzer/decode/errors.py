"""Errors of an analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core

if TYPE_CHECKING:
    from ..model.analysis import Analysis

CaptureError = _core.CaptureError
"""A file cannot be opened or is no capture; the message says which file, where, and what to do."""
EmptyCaptureError = _core.EmptyCaptureError
"""The capture ends before its first packet."""

SpillError = _core.SpillError
"""A temporary file cannot be written or read; the message is the operating system's."""
MemoryLimitError = _core.MemoryLimitError
"""More memory is needed than is allowed; the message says how much was taken so far."""


class NoGrpcError(Exception):
    """The capture has no gRPC traffic; the message says what it has."""

    def __init__(self, message: str, analysis: Analysis | None = None) -> None:
        """`analysis` describes the connections, also TLS without secrets."""
        super().__init__(message)
        self.analysis = analysis


class NarrowError(ValueError):
    """The selection matches no RPC; the message says what the capture has."""


class TooLargeError(Exception):
    """A capture has more packets than can be matched with another one; the message says what to do."""
