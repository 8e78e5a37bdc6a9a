"""Captures of other software of which a part is taken away: nothing is found that the whole capture does not show."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from lessened import Capture, capture_of
from support import RECORDED
from tampered import keep_direction, tamper

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.errors import NoGrpcError

WILD = RECORDED / "wild"
NAMES = (
    "connect-node-idle",
    "connect-refused",
    "curl-timer",
    "grpc-js-downlink-restored",
    "grpc-js-idle-drop",
    "grpc-js-watch-forgotten",
    "grpcio-age-grace",
    "grpcio-request-lost",
    "half-open-keepalive",
    "idle-finrace",
    "rst-thirdparty",
    "rst-thirdparty-server",
    "server-kill",
    "tonic-rebooted",
    "watch-limit-full",
)


@cache
def whole(name: str) -> Capture:
    return capture_of([str(WILD / f"{name}.pcap.zst")])


def write(data: bytes, folder: Path) -> str:
    path = folder / "less.pcap"
    path.write_bytes(data)
    return str(path)


def begin_late(capture: Capture, folder: Path) -> str:
    return write(capture.without(range(1, len(capture) * 45 // 100)), folder)


def begin_later(capture: Capture, folder: Path) -> str:
    return write(capture.without(range(1, len(capture) * 7 // 10)), folder)


def end_early(capture: Capture, folder: Path) -> str:
    return write(capture.without(range(len(capture) * 3 // 4, len(capture) + 1)), folder)


def snap(capture: Capture, folder: Path) -> str:
    return write(capture.snapped(96), folder)


def keep_requests(capture: Capture, folder: Path) -> str:
    source = write(capture.data, folder)
    return tamper(source, folder / "requests.pcap", keep_direction(source, "client"))


def double(capture: Capture, folder: Path) -> str:
    """Each packet twice, as on a bridge or the device `any`."""
    records = (bytes(capture.record(number)) for number in range(1, len(capture) + 1))
    return write(capture.data[:24] + b"".join(record * 2 for record in records), folder)


def find_grave(path: str) -> set[str]:
    try:
        return {finding.id for finding in analyze([path]).findings if finding.severity != "info"} - {"capture-quality"}
    except NoGrpcError:
        return set()


@pytest.mark.parametrize("lessen", [begin_late, begin_later, end_early, snap, keep_requests, double])
@pytest.mark.parametrize("name", NAMES)
def test_less_shows_no_more(name: str, lessen: Callable[[Capture, Path], str], tmp_path: Path) -> None:
    known = {finding.id for finding in analyze([str(WILD / f"{name}.pcap.zst")]).findings}
    if lessen is end_early and name == "grpcio-request-lost":
        known.add("idle-connection-cut")  # the part ends before the answer after 3.3 s
    assert find_grave(lessen(whole(name), tmp_path)) <= known
