"""An estimated congestion window beyond the real one: cubic leaves slow start by itself, which no packet tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_idle_restart import AFTER_ACK, METHOD, MSS, RTT
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS

WARM = 31
"""Segments of the estimate after two calls in slow start, as the wait before the pause has it."""


def stop_at(segments: int, pause_ns: int, tmp_path: Path, *, idle_ns: int = 150 * MS) -> Tables:
    """A sender that is estimated at some 31 segments stops inside a message."""
    conv: Conversation = opened(rtt_ns=RTT)
    conv.unary(METHOD, request=10_000, response=10)
    conv.unary(METHOD, request=20_000, response=10)
    conv.advance_to(max(write.time_ns for write in conv.writes if write.direction == "client") + idle_ns)
    conv.pause_after("client", segments * MSS, pause_ns)
    conv.unary(METHOD, request=60_000, response=10)
    path = tmp_path / "stop.pcap"
    path.write_bytes(write_pcap(Link(rtt_ns=RTT).carry(conv)))
    return decode([str(path)])


def told(tables: Tables, segments: int) -> tuple[str, int]:
    """Cause and estimate, in segments, of the wait at that many segments in flight."""
    waits = tables.waits
    (row,) = [i for i, flying in enumerate(waits.in_flight_bytes.tolist()) if flying == segments * MSS]
    return CAUSES[waits.cause[row]], round(int(waits.congestion_window_bytes[row]) / MSS)


@pytest.mark.parametrize(
    ("segments", "pause_ns", "expected"),
    [
        (20, AFTER_ACK, ("congestion_window", 20)),  # for a round trip, until the ACK: there the window was
        (20, RTT // 2, ("unexplained", WARM)),  # no ACK let it go on
        (20, AFTER_ACK + 60 * MS, ("client", WARM)),  # long after the ACK: it had no more to send
        (12, AFTER_ACK, ("unexplained", WARM)),  # an estimate in slow start is not more than twice too large
    ],
)
def test_a_sender_that_stands_still_shows_its_window(
    segments: int, pause_ns: int, expected: tuple[str, int], tmp_path: Path
) -> None:
    cause, estimate = told(stop_at(segments, pause_ns, tmp_path), segments)
    assert cause == expected[0]
    assert estimate == pytest.approx(expected[1], abs=1)


def test_the_first_burst_after_idle_time_proves_no_cause(tmp_path: Path) -> None:
    """Idle time halves the window by a rule: a stop below that may have another reason, though the estimate follows."""
    cause, estimate = told(stop_at(11, AFTER_ACK, tmp_path, idle_ns=400 * MS), 11)
    assert WARM // 2 > 12
    assert (cause, estimate) == ("unexplained", pytest.approx(11, abs=1))
