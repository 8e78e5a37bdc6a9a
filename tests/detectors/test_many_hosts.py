"""Findings that sum up over hosts name all of them, and show the packets of each: none is blamed for the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import changed, must

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import (
    abrupt_goaway,
    forged_reset,
    hung_rpc,
    keepalive_timeout,
    lost_answer,
    mtu_black_hole,
    peer_unreachable,
    proxy_error,
    stream_timeout,
    too_many_pings,
)
from grpcdiag.analyzer.facts.hosts import name_hosts
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.catalogue import CATALOGUE
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.mangle import in_time_order
from grpcdiag.fixtures.synthetic.packet import Captured, Endpoint, captured
from grpcdiag.fixtures.synthetic.words import PEER, Side

HOSTS = 3
CASES: list[tuple[Any, str, Side]] = [
    (abrupt_goaway, "abrupt-goaway-refuses", "server"),
    (forged_reset, "forged-reset-fires", "server"),
    (hung_rpc, "hung-rpc-fires", "server"),
    (keepalive_timeout, "keepalive-timeout-fires", "client"),
    (lost_answer, "lost-answer-fires", "server"),
    (mtu_black_hole, "mtu-black-hole-client", "server"),
    (peer_unreachable, "peer-unreachable-fires", "server"),
    (proxy_error, "proxies-login-page", "server"),
    (stream_timeout, "stream-timeout-fires", "server"),
]


def on_hosts(name: str, side: Side, hosts: int, folder: Path) -> Tables:
    """A scene several times at once, each time with another host at one side."""
    packets = [packet for number in range(hosts) for packet in _move(name, side, number)]
    path = folder / "hosts.pcap"
    path.write_bytes(write_pcap(in_time_order(packets)))
    return decode([str(path)])


def _move(name: str, side: Side, number: int) -> Iterator[Captured]:
    def place(end: Endpoint, of: Side) -> Endpoint:
        moved = replace(end, ip=f"10.0.{number}.9") if of == side else end
        return replace(moved, port=end.port + number) if of == "client" else moved

    for packet in CATALOGUE[name]().packets:
        segment = packet.segment
        assert segment
        source, destination = (
            place(segment.source, segment.direction),
            place(segment.destination, PEER[segment.direction]),
        )
        yield captured(packet.time_ns, replace(segment, source=source, destination=destination))


@pytest.mark.parametrize(("detector", "name", "side"), CASES, ids=[case[0].ID for case in CASES])
def test_each_host_counts(detector: Any, name: str, side: Side, tmp_path: Path) -> None:
    alone, together = (must(detector, on_hosts(name, side, hosts, tmp_path)) for hosts in (1, HOSTS))
    assert f"{side} 10.0.0.9" in alone.verdict
    assert f"{HOSTS} of {HOSTS} {side}s" in together.verdict
    assert f"{side} 10.0.0.9" not in together.title + together.verdict
    assert len(together.scope.connections) == HOSTS


@pytest.mark.parametrize(("hosts", "named"), [(1, "client 10.0.0.9"), (2, "2 of 2 clients")])
def test_advice_is_for_each_host(hosts: int, named: str, tmp_path: Path) -> None:
    tables = on_hosts("failures-too-many-pings", "client", hosts, tmp_path)
    probes = changed(tables, "pings", purpose=tables.pings.purpose * 0 + _core.PING_PURPOSES.index("bdp"))
    assert f"set fixed windows at {named}" in must(too_many_pings, probes).verdict


def test_what_is_said_of_some_of_them_is_shown(tmp_path: Path) -> None:
    """The packets of each connection name its own host; sizes are those of all."""
    tables = on_hosts("mtu-black-hole-client", "server", 2, tmp_path)
    shown = " ".join(item.what for item in must(mtu_black_hole, tables).evidence)
    assert all(server in shown for server in ("server 10.0.0.9", "server 10.0.1.9"))
    short = changed(tables, "undelivered", segment_bytes=[1448, 1200])
    assert "with 1,200 to 1,448 bytes never arrive" in must(mtu_black_hole, short).title


def test_both_kinds_of_ends_are_hosts(tmp_path: Path) -> None:
    tables = on_hosts("forged-reset-fires", "server", 2, tmp_path)
    assert name_hosts(tables, [0, 1], np.array([0, 1], dtype=np.uint8)) == "2 hosts (client 10.0.0.1 and others)"
    assert name_hosts(tables, [0, 1], 0) == "client 10.0.0.1"
