"""Analyze packets as they come: tables and findings of the last seconds, for as long as there are packets."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, TypedDict, Unpack

from msgspec import Struct

from .. import _core
from ..analysis import of_tables
from ..decode.errors import NoGrpcError
from ..decode.runner import PATIENCE_S
from ..model.analysis import Analysis
from ..tables import Tables, tables_of


class LiveOptions(TypedDict, total=False):
    """How packets are read; see `DecodeOptions`."""

    errors: bool
    """Whether all texts of `grpc-message` are kept, which may hold anything; false by default."""
    ports: list[int]
    """Ports whose connections are HTTP/2 whatever they look like."""
    keylog: bytes
    """TLS secrets in the format of SSLKEYLOGFILE."""
    key_file: str
    """A file in that format to which programs write meanwhile; it is read when a connection needs secrets."""


class LiveState(Struct, frozen=True):
    """How much the core keeps: only `packets` grows with time, the rest is bounded."""

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
    """The tables, as of a capture of this time. Packets are counted from the first one of the stream."""
    begin_ns: int | None
    """When the piece before it ended, or when the first packet came, nanoseconds since the epoch; None without any."""
    end_ns: int
    """When its last piece ended; 0 before the first packet of the stream."""
    first_packet: int
    """Number of the first packet that the window may contain."""
    missing: int
    """Pieces in front that were asked for, and for which there was no room."""

    @property
    def seconds(self) -> float:
        """Give the window's length in seconds; 0 without packets."""
        return max(self.end_ns - (self.begin_ns or 0), 0) / 1e9 if self.begin_ns else 0.0

    def analyze(self, notes: tuple[str, ...] = ()) -> Analysis:
        """Run the detectors; `notes` are warnings about the capture. Without RPCs it describes the connections."""
        if self.missing:
            notes = (
                *notes,
                f"the first {self.missing:,} pieces of the window are left out: the others take all the room",
            )
        try:
            return of_tables(self.tables, notes=notes)
        except NoGrpcError as error:
            assert error.analysis is not None
            return error.analysis


class LiveCapture:
    """A capture that is read while it is recorded, in a thread of the core."""

    def __init__(self, source: int | str, *, history: int = 1, **how: Unpack[LiveOptions]) -> None:
        """Begin to open a file descriptor or a path; `-` is standard input. pcap or pcapng, compressed or not.

        The descriptor stays the caller's. `history` is the largest number of pieces that `window` joins.
        """
        path = f"/dev/fd/{source}" if isinstance(source, int) else source
        self._core = _core.Live(path, history=history, **how)
        self.is_over = False
        """Whether the stream has ended and all of it was read."""

    def read(self, seconds: float) -> bool:
        """Read for so many seconds by the host's clock. False when the stream is over; then it returns at once.

        Raises CaptureError for what is no capture. Signals are handled meanwhile.
        """
        end = time.monotonic() + seconds
        while not self.is_over and (left := end - time.monotonic()) > 0:
            _, goes_on = self._core.wait(min(left, PATIENCE_S))
            self.is_over = not goes_on
        return not self.is_over

    def cut(self, end_ns: int | None = None) -> None:
        """End a piece here. `end_ns` is the time up to which no packet is missing, if later than the last packet's.

        Reading goes on meanwhile. The first cut after the stream's end is the last one: bytes that wait for lost ones
        are given up then, as `analyze` does at a capture's end. Further cuts do nothing.
        """
        self._core.cut(end_ns)

    def window(self, pieces: int = 1) -> Window:
        """Join the last pieces, or as many as there are. Raises ValueError before the first cut."""
        found = self._core.window(pieces)
        if found is None:
            raise ValueError("no piece was cut")
        return Window(tables_of(found), found["begin_ns"], found["end_ns"], found["first_packet"], found["missing"])

    def state(self) -> LiveState:
        """Count what is kept."""
        return LiveState(*self._core.kept())

    def close(self) -> None:
        """Stop reading. A thread that waits for bytes ends with the next packet, or when the pipe is closed."""
        self._core.stop()

    def __enter__(self) -> Self:
        """Give the capture itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading."""
        self.close()
