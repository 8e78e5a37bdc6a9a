"""Captures cut short: no error but the one about the cut, and RPCs that are a prefix of the whole's (invariant 6).

Small captures are cut after each of their records and large ones after some; the crate's tests cut all of them after
every record. With `GRPCDIAG_CUTS=all` each capture is cut at 200 random bytes here, too.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lessened import Capture, capture_of, filed
from support import RECORDINGS, Recording

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import CaptureError
from grpcdiag.analyzer.tables import COMPLETE, NOT_SEEN, Tables

ALL = os.environ.get("GRPCDIAG_CUTS") == "all"
BYTES_READ = 6_000_000
"""Bytes that the cuts of one capture add up to in the normal run: what takes a tenth of a second or two."""
RANDOM_BYTES = 200
SOME = ("impl-go", "rpc-errors", "rtt205-go-16000", "tls13-go")
CLASSIC = [pytest.param(r, id=r.id) for r in RECORDINGS if r.files[0].endswith(".pcap") and (ALL or r.name in SOME)]
"""Captures whose columns are held against the whole's; the crate's tests cut every capture."""
FILE_HEADER = 24
"""Bytes of a pcap file's header: a shorter file is no capture."""

Row = tuple[Any, ...]


def rows_of(tables: Tables) -> dict[Row, Row]:
    """RPCs by connection and stream: what is known of them, the packet that ended them last."""
    r, c = tables.rpcs, tables.connections
    names = [tables.method_name(int(number)) for number in r.method.tolist()]
    keys = zip(
        c.client_port[r.connection].tolist(), c.server_port[r.connection].tolist(), r.stream.tolist(), strict=True
    )
    columns = (r.start_time_ns, r.first_packet, r.status, r.flags, r.duration_ns, r.last_packet)
    facts = zip(names, *(column.tolist() for column in columns), strict=True)
    return dict(zip(keys, facts, strict=True))


@cache
def whole_of(files: tuple[str, ...]) -> tuple[Capture, dict[Row, Row]]:
    capture = capture_of(files)
    with filed(capture.data) as whole:
        return capture, rows_of(decode(whole, rpc_rows=True))


def check(files: tuple[str, ...], length: int) -> None:
    """Decodes the first `length` bytes."""
    capture, whole = whole_of(files)
    packets = capture.packets_before(length)
    try:
        with filed(capture.data[:length]) as cut:
            tables = decode(cut, rpc_rows=True)
    except CaptureError:
        assert length < FILE_HEADER, f"cut at {length}"
        return
    about = f"cut at {length}, behind packet {packets}"
    assert tables.capture["packets"] == packets, about
    places = [place["offset"] for place in tables.capture["damage"]]
    clean = length in (capture.offsets[packets], FILE_HEADER)
    assert places == ([] if clean else [capture.offsets[packets]]), about
    found = rows_of(tables)
    for key, now in found.items():
        assert key in whole, f"{about}: {key} is made up"
        is_prefix(now, whole[key], packets, about)
    lost = [key for key, then in whole.items() if 0 < then[6] <= packets and key not in found]
    assert not lost, f"{about}: {lost} are lost"


def is_prefix(now: Row, then: Row, packets: int, about: str) -> None:
    """What is known of an RPC by the end of the cut is what the whole tells."""
    name, start, first, status, flags, duration, last = now
    assert (start, first) == then[1:3], f"{about}: {now} is not {then}"
    assert name == then[0] or name is None, f"{about}: {now} is not {then}"
    if flags & COMPLETE:
        assert (status, duration, last) == (then[3], then[5], then[6]), f"{about}: {now} is not {then}"
        assert last <= packets
    else:
        # trailers behind bytes that may still come tell the status, not the end
        assert status in (NOT_SEEN, then[3]), f"{about}: {now}"


def ends(capture: Capture) -> Iterator[int]:
    """Where records end: all, or as many as the normal run affords."""
    mean = len(capture.data) / 2
    step = max(1, round(len(capture) * mean / BYTES_READ))
    yield from capture.offsets[::step]


@pytest.mark.parametrize("capture", CLASSIC)
def test_a_cut_after_a_record_gives_a_prefix(capture: Recording) -> None:
    for length in ends(whole_of(capture.files)[0]):
        check(capture.files, length)


@pytest.mark.parametrize("capture", CLASSIC)
def test_a_cut_at_any_byte_is_told_and_gives_a_prefix(capture: Recording) -> None:
    rng = random.Random(capture.id)
    whole = whole_of(capture.files)[0]
    count = RANDOM_BYTES if ALL else max(5, min(RANDOM_BYTES, round(2 * BYTES_READ / len(whole.data))))
    for length in [
        *range(0, FILE_HEADER + 20, 1 if ALL else 5),
        *(rng.randrange(len(whole.data)) for _ in range(count)),
    ]:
        check(capture.files, length)


def test_a_cut_pcapng_gives_a_prefix(tmp_path: Path) -> None:
    """At 200 random bytes, and around its first blocks."""
    capture = next((r for r in RECORDINGS if r.name == "tls13-go-secrets"), None)
    if capture is None:
        pytest.skip("tls13-go-secrets is not here")
    data, rng = Path(capture.files[0]).read_bytes(), random.Random(1)
    with filed(data) as files:
        whole = rows_of(decode(files, rpc_rows=True))
    for length in [*range(28, 300, 7), *(rng.randrange(300, len(data)) for _ in range(RANDOM_BYTES))]:
        with filed(data[:length]) as files:
            tables = decode(files, rpc_rows=True)
        assert len(tables.capture["damage"]) <= 1
        for key, now in rows_of(tables).items():
            is_prefix(now, whole[key], tables.capture["packets"], f"cut at {length}")
