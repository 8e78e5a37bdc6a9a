"""Frames one by one against Wireshark's reading, on captures of six gRPC implementations.

tshark lists the HTTP/2 frames that end in each packet, in their order. What it does otherwise, and is worked around:

* The connection preface is listed as a frame without a type (`http2.magic`); it has no `http2.type`, so it drops out.
* A frame that spans packets is listed where it ends, which is `last_packet` here.
* A `http2.length` of a header block that HPACK cannot decode is listed all the same.
"""

from __future__ import annotations

import subprocess
from collections import Counter

import pytest
from support import RECORDINGS, Recording, first_difference, recording, require_tool, rows

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.tables import Frames

IMPLEMENTATIONS = [pytest.param(r, id=r.id) for r in RECORDINGS if r.name.startswith("impl-")]

Row = tuple[int, int, int, int, int]
"""Direction, completing packet, type, stream, length."""


def by_tshark(capture: Recording) -> list[Row]:
    port = capture.truth["server_port"]
    command = [require_tool("tshark"), "-r", *capture.files, "-d", f"tcp.port=={port},http2", "-T", "fields"]
    command += ["-o", "tcp.reassemble_out_of_order:TRUE", "-E", "occurrence=a", "-E", "separator=;"]
    fields = ("frame.number", "tcp.srcport", "http2.type", "http2.streamid", "http2.length")
    command += [part for field in fields for part in ("-e", field)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    found: list[Row] = []
    for line in done.stdout.splitlines():
        number, source, *lists = line.split(";")
        if not source:  # router solicitations of the TUN devices
            continue
        kinds, streams, lengths = ([int(v) for v in text.split(",") if v] for text in lists)
        assert len(streams) == len(lengths) >= len(kinds), f"tshark's lists do not match in packet {number}: {line}"
        direction = int(int(source) == port)
        found += (
            [
                (direction, int(number), kind, stream, length)
                for kind, stream, length in zip(kinds, streams[-len(kinds) :], lengths[-len(kinds) :], strict=True)
            ]
            if kinds
            else []
        )
    return found


def ours(capture: Recording) -> list[Row]:
    f = rows(Frames, capture.files)
    columns = (f.direction, f.last_packet, f.kind, f.stream, f.length)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("capture", IMPLEMENTATIONS)
def test_frames_are_tsharks(capture: Recording) -> None:
    theirs, mine = by_tshark(capture), ours(capture)
    assert len(theirs) == sum(capture.truth["raw_count"]["frames_by_type"].values())
    for direction in (0, 1):
        left = [row for row in mine if row[0] == direction]
        right = [row for row in theirs if row[0] == direction]
        assert left == right, first_difference(left, right)


@pytest.mark.parametrize("capture", [pytest.param(r, id=r.id) for r in RECORDINGS if r.name.startswith("loss-")])
def test_frames_of_lossy_links_are_tsharks(capture: Recording) -> None:
    """Counts by type, with retransmissions and packets out of order in between."""
    names = decode(capture.files).frame_counts
    kinds = Counter(row[2] for row in by_tshark(capture))
    table = ("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE")
    assert {table[kind]: n for kind, n in kinds.items()} == names


def test_wireshark_names_the_packet_where_a_frame_ends() -> None:
    """The frames of a 32 kB message begin many packets earlier, which only `first_packet` tells."""
    capture = recording("rtt205-go-32000")
    f = rows(Frames, capture.files)
    spanning = f.last_packet - f.first_packet
    assert spanning.max() >= 10
    assert (f.last_time_ns - f.first_time_ns).max() > 200_000_000
