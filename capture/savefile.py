"""Looking at what tcpdump wrote: is every packet there, and whole?"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass

_RECORD = 16
_MAGICS = {b"\xd4\xc3\xb2\xa1": "<", b"\x4d\x3c\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">", b"\xa1\xb2\x3c\x4d": ">"}


@dataclass(frozen=True)
class Written:
    """What a pcap file holds."""

    packets: int
    """Whole ones."""
    cut_at: int | None
    """Byte at which the last packet begins that is not whole; None when all are."""


HEADER = 24
"""Bytes of a pcap file without packets."""


def look(descriptor: int) -> Written:
    """Walk the records of an open pcap file as tcpdump writes it. Raises OSError."""
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
