"""The same packets in other files: pcap and pcapng, compressed, cut into the files of a rotated capture."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from support import invoke

from grpcdiag.fixtures.synthetic.files import NANOSECONDS, Interface, write_pcap, write_pcapng
from grpcdiag.fixtures.synthetic.packet import Captured

SNAPLEN = 262_144
FORMATS = ("pcap", "pcap nanoseconds", "pcap big-endian", "pcapng")
COMPRESSIONS = ("plain", "gzip", "gzip members", "zstd", "zstd frames", "lz4", "lz4 frames")
_MEMBER = 50_000


class Packets:
    """The packets of a little-endian pcap file, to be written otherwise."""

    def __init__(self, path: str | Path) -> None:
        data = Path(path).read_bytes()
        self.fine = int.from_bytes(data[:4], "little") == NANOSECONDS
        unit = 1 if self.fine else 1000
        self.snaplen = int.from_bytes(data[16:20], "little")
        self.link_type = int.from_bytes(data[20:24], "little")
        self.all: list[Captured] = []
        at = 24
        while at + 16 <= len(data):
            seconds, rest, length, original = struct.unpack_from("<IIII", data, at)
            content = data[at + 16 : at + 16 + length]
            at += 16 + length
            if len(content) == length:
                self.all.append(Captured(seconds * 10**9 + rest * unit, content, original_length=original))

    def cuts(self, points: Sequence[int]) -> list[list[Captured]]:
        """The packets in pieces that end at these numbers; none is empty."""
        ends = sorted({0, len(self.all), *(point % len(self.all) for point in points)})
        return [self.all[begin:end] for begin, end in pairwise(ends)]

    def written(self, form: str = "pcap", compression: str = "plain", packets: list[Captured] | None = None) -> bytes:
        """A capture file of all packets, or of some."""
        packets = self.all if packets is None else packets
        if form == "pcapng":
            return compressed(write_pcapng(packets, [Interface(self.link_type, self.snaplen)]), compression)
        order, fine = ">" if "big" in form else "<", self.fine or "nano" in form
        content = write_pcap(
            packets,
            link_type=self.link_type,
            nanoseconds=fine,
            order=order,
            snaplen=self.snaplen,  # type: ignore[arg-type]
        )
        return compressed(content, compression)


def compressed(content: bytes, how: str) -> bytes:
    """The bytes compressed, perhaps in several members or frames one after the other."""
    if how == "plain":
        return content
    kind, several = how.split()[0], " " in how
    pieces = [content[at : at + _MEMBER] for at in range(0, len(content), _MEMBER)] if several else [content]
    return b"".join(gzip.compress(piece) if kind == "gzip" else _arrow(piece, kind) for piece in pieces)


def _arrow(content: bytes, kind: str) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, kind) as stream:
        stream.write(content)
    return out.getvalue().to_pybytes()


WIDE = {"COLUMNS": "400"}
"""A terminal in which the paths of captures have room: a screen holds as many lines fewer as they take."""


def told(arguments: Sequence[str], *, threads: int | None = None) -> bytes:
    """What a command that reads files writes; in this process."""
    outcome = invoke(arguments, GRPCDIAG_THREADS=str(threads) if threads else None, **WIDE)
    assert outcome.exit_code == 0, (arguments, outcome.stderr, outcome.exception)
    return outcome.stdout_bytes


def piped(arguments: Sequence[str], content: bytes, *, threads: int | None = None) -> bytes:
    """What a command writes that reads `-`; in a process of its own."""
    environment = {**os.environ, **WIDE, **({"GRPCDIAG_THREADS": str(threads)} if threads else {})}
    command = [sys.executable, "-m", "grpcdiag", *arguments]
    done = subprocess.run(command, input=content, capture_output=True, timeout=120, env=environment)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout
