"""Encode columns of integers compactly for a page: differences, variable-length bytes, deflate, base64."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST = 2**53 - 1
"""Largest integer that JavaScript's numbers hold exactly; larger ones, only in hostile captures, are clipped to it."""

_LEVEL = 6
"""The default of zlib. The highest, 9, takes three times as long and makes the columns 4% smaller."""

Layout = list[dict[str, Any]]
"""For each table its name, rows and columns; for each column its name, its unit, and whether it holds differences."""


def packed(tables: Mapping[str, Mapping[str, npt.NDArray[Any]]], rising: Sequence[str]) -> tuple[Layout, str]:
    """Encode columns as one base64 text and give its layout; the columns named in `rising` hold differences.

    value = unit x number. Numbers are zigzag-coded (0, -1, 1, -2 ...) and written seven bits per byte, lowest first.
    """
    layout: Layout = []
    pieces: list[bytes] = []
    for table, columns in tables.items():
        described = []
        rows = 0
        for name, column in columns.items():
            values = np.clip(column.astype(np.int64), -LARGEST, LARGEST)
            # the greatest common divisor: times of most captures are whole microseconds
            rows, unit = len(values), max(int(np.gcd.reduce(values)), 1) if len(values) else 1
            numbers = values if unit == 1 else values // unit
            if name in rising:
                numbers = np.diff(numbers, prepend=0)
            pieces.append(_encode_varints(numbers))
            described.append({"name": name, "rising": name in rising, "unit": unit})
        layout.append({"name": table, "rows": rows, "columns": described})
    return layout, deflated(b"".join(pieces))


def deflated(data: bytes) -> str:
    """Compress bytes in zlib's format and encode them as base64."""
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode("ascii")


def _encode_varints(values: npt.NDArray[np.int64]) -> bytes:
    # zigzag: the shift by 63 gives 0 or -1, so small negative numbers become small positive ones
    coded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    places = max(-(-int(coded.max(initial=0)).bit_length() // 7), 1)
    if places == 1:
        return coded.astype(np.uint8).tobytes()
    lengths = np.ones(len(coded), dtype=np.int64)
    for power in range(1, places):
        lengths += coded >= np.uint64(1 << (7 * power))
    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), dtype=np.uint8)
    for place in range(places):
        has = lengths > place
        low = (coded[has] >> np.uint64(7 * place)) & np.uint64(127)
        out[starts[has] + place] = low | np.where(lengths[has] > place + 1, np.uint64(128), np.uint64(0))
    return out.tobytes()
