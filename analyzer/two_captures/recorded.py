"""Read a capture for matching: its tables, and a few columns of its packets and frames."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Unpack

import numpy as np
from msgspec import Struct

from .. import _core
from ..decode.errors import TooLargeError
from ..decode.runner import STEP, DecodeOptions, Progress, Run
from ..tables import Codes, Counts, Ints, Tables, tables_of

MOST_PACKETS = 3_000_000
"""Most packets of one capture that are matched; two captures take some 350 bytes of memory per packet."""

DUPLICATE = _core.PACKET_NOTES.index("duplicate")
"""`Trace.note` of a packet recorded twice."""
RETRANSMISSION = _core.PACKET_NOTES.index("retransmission")
"""`Trace.note` of a retransmitted packet."""

_FRAMES_OF_STREAMS = np.isin(np.arange(256), [0, 1, 3, 9])  # DATA, HEADERS, RST_STREAM, CONTINUATION


class Trace(Struct, frozen=True, eq=False):
    """TCP packets in the order of the capture, without those recorded twice; columns as in `Packets`."""

    packet: Counts
    time_ns: Ints
    connection: Ints
    direction: Codes
    flags: Codes
    seq: Ints
    ack: Ints
    length: Ints
    note: Codes
    identification: Counts
    timestamp: Counts

    def __len__(self) -> int:
        """Count the packets."""
        return len(self.packet)


class StreamFrames(Struct, frozen=True, eq=False):
    """Frames that carry RPCs, in the order of their last bytes; columns as in `Frames`."""

    connection: Ints
    direction: Codes
    stream: Ints
    first_packet: Ints
    last_packet: Ints


_Rows = TypeVar("_Rows", Trace, StreamFrames)


class Recorded(Struct, frozen=True, eq=False):
    """A capture that was read for matching."""

    files: tuple[str, ...]
    tables: Tables
    trace: Trace
    frames: StreamFrames


def read(
    files: Sequence[str], *, most: int | None = None, progress: Progress | None = None, **how: Unpack[DecodeOptions]
) -> Recorded:
    """Read a capture; with `most`, only about that many packets from its beginning.

    Raises CaptureError, and TooLargeError beyond `MOST_PACKETS`.
    """
    run = Run(files, packets=True, frames=most is None, rpc_rows=most is None, **how)
    traces: list[Trace] = []
    frames: list[StreamFrames] = []
    kept = 0
    while run.step(min(most or STEP, STEP)):
        traces.append(_trace(run.take("packets")))
        frames.append(_stream_frames(run.take("frames")))
        kept += len(traces[-1])
        if most is None:
            _allow(kept, files[0])
        if progress:
            progress(run.bytes_read, run.bytes_total)
        if most is not None and kept >= most:
            break
    result = run.finish()
    traces.append(_trace(result["packets"]))
    frames.append(_stream_frames(result["frames"]))
    if most is None:
        _allow(kept + len(traces[-1]), files[0])
    return Recorded(tuple(files), tables_of(result), _joined(Trace, traces), _joined(StreamFrames, frames))


def _allow(packets: int, name: str) -> None:
    if packets > MOST_PACKETS:
        text = f"{name} has more than {MOST_PACKETS:,} TCP packets, too many to match"
        raise TooLargeError(f"{text}: cut out the minutes that matter (editcap -A -B) or filter its connections")


def _trace(columns: Mapping[str, Any]) -> Trace:
    rows = columns["note"] != DUPLICATE
    column = {name: cells[rows] for name, cells in columns.items()}
    return Trace(
        packet=column["packet"],
        time_ns=column["time_ns"],
        connection=column["connection"].astype(np.int64),
        direction=column["direction"],
        flags=column["flags"].astype(np.uint8),
        seq=column["seq"].astype(np.int64),
        ack=column["ack"].astype(np.int64),
        length=column["payload_bytes"].astype(np.int64),
        note=column["note"],
        identification=column["identification"],
        timestamp=column["timestamp"],
    )


def _stream_frames(columns: Mapping[str, Any]) -> StreamFrames:
    rows = (columns["stream"] > 0) & _FRAMES_OF_STREAMS[columns["kind"]]
    column = {name: columns[name][rows] for name in StreamFrames.__struct_fields__}
    return StreamFrames(**{name: c if name == "direction" else c.astype(np.int64) for name, c in column.items()})


def _joined(kind: type[_Rows], pieces: Sequence[_Rows]) -> _Rows:
    return kind(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in kind.__struct_fields__))
