"""Analyze packets as they come: tables and findings of the last seconds, for as long as there are packets."""

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from msgspec import Struct

from .decode.runner import DecodeOptions
from .model.analysis import Analysis
from .tables import Tables


class LiveState(Struct, frozen=True):
    """What the core keeps, by number: it does not grow with time."""

    packets: int
    """Packets read since the beginning."""
    connections: int
    """Connections that are followed."""
    streams: int
    """Streams that are open on them."""
    rows: int
    """Rows of the pieces that are kept, and of the piece that is being read."""
    names: int
    """Methods, agents and error texts."""


class Window(Struct, frozen=True, eq=False):
    """The last pieces, joined."""

    tables: Tables
    """The tables, as of a capture of this time. Numbers of packets count from the first packet of the stream."""
    begin_ns: int
    """Time of the cut before it, or of the first packet, in nanoseconds since the epoch."""
    end_ns: int
    """Time of the cut at its end."""
    first_packet: int
    """Number of the first packet behind the cut before it."""

    def analyze(self) -> Analysis:
        """Run the detectors, and leave out findings whose packets all lie before the window.

        A window without gRPC has an analysis too: of its connections.
        """
        raise NotImplementedError


class LiveCapture:
    """A capture that is read while it is recorded, in a thread of the core."""

    def __init__(self, source: int | str, *, history: int = 1, **how: Unpack[DecodeOptions]) -> None:
        """Begin to read a file descriptor or a path; `-` is standard input. pcap or pcapng, compressed or not.

        A pipe is read as bytes come; the descriptor stays the caller's. `history` is the largest number of pieces that
        `window` joins.
        """
        raise NotImplementedError

    def read(self, seconds: float) -> bool:
        """Read for so many seconds by the host's clock. False when the stream is over; then it returns at once.

        Raises CaptureError for what is no capture. Signals are handled meanwhile.
        """
        raise NotImplementedError

    def read_until(self, time_ns: int) -> bool:
        """Read the packets before a time of the capture, and wait for one that is not. False when the stream is over."""
        raise NotImplementedError

    def cut(self, end_ns: int | None = None) -> None:
        """End a piece here. `end_ns` is the time up to which no packet is missing, if later than the last packet's.

        Reading goes on meanwhile in the core's thread. After the end of the stream the last piece is the capture's end:
        bytes that wait for lost ones are given up, as `analyze` does.
        """
        raise NotImplementedError

    def window(self, pieces: int = 1) -> Window:
        """Join the last pieces, or as many as there are. Raises ValueError before the first cut."""
        raise NotImplementedError

    @property
    def is_over(self) -> bool:
        """Whether the stream has ended and all of it was read."""
        raise NotImplementedError

    def state(self) -> LiveState:
        """Count what is kept."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop reading. A thread that waits for bytes ends with the next ones, or when the pipe is closed."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Give the capture itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading."""
        self.close()
