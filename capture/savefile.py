"""Check the file that tcpdump wrote: whether it has every packet, and whether all are complete."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass

_RECORD = 16
_MAGICS = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}


@dataclass(frozen=True)
class Written:
    """The contents of a pcap file."""

    packets: int
    """Complete packets."""
    cut_at: int | None
    """Byte at which an incomplete last packet begins; None if all packets are complete."""


HEADER = 24
"""Size in bytes of a pcap file without packets."""


def look(descriptor: int) -> Written:
    """Read the records of an open pcap file as tcpdump writes it. Raises OSError."""
    size = os.fstat(descriptor).st_size
    if size < HEADER:
        return Written(0, 0)
    with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as data:
        order = _MAGICS.get(data[:4])
        if order is None:
            return Written(0, 0)
        lengths = struct.Struct(order + "I")
        at, packets = HEADER, 0
        while at + _RECORD <= size:
            after = at + _RECORD + lengths.unpack_from(data, at + 8)[0]
            if after > size:
                break
            at, packets = after, packets + 1
        return Written(packets, None if at == size else at)
