"""What an analysis can fail with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core

if TYPE_CHECKING:
    from ..model.analysis import Analysis

CaptureError = _core.CaptureError
"""A capture cannot be opened or is none; the message says which file, where, and what to do."""
EmptyCaptureError = _core.EmptyCaptureError
"""The same of a capture that ends before its first packet could begin."""

SpillError = _core.SpillError
"""A temporary file cannot be written or read; the message is the operating system's."""
MemoryLimitError = _core.MemoryLimitError
"""More memory is needed than is allowed; the message says how much was taken so far."""


class NoGrpcError(Exception):
    """The capture holds no gRPC traffic; the message says what it does hold."""

    def __init__(self, message: str, analysis: Analysis | None = None) -> None:
        """`analysis` is what can be told all the same, of TLS without secrets."""
        super().__init__(message)
        self.analysis = analysis


class NarrowError(ValueError):
    """None of the capture's RPCs is asked for; the message says what there is."""


class TooLargeError(Exception):
    """A capture has more packets than can be matched with another one; the message says what to do."""
