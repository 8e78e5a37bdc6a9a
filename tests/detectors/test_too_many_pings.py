"""`too-many-pings`: the PING that tripped it, those before it, and PINGs that do no harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from judging import changed, must, played, repeated, skipped, tables_of_scene, told
from support import recorded, recording, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import too_many_pings
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.scenes_failures import pinging

FIRES_ON = ["too-many-pings", "lab/too-many-pings", "wild/connect-node-pings"]
QUIET_ON = ["impl-go", "impl-py", "rtt205-go-16000"]


def test_the_ping_that_tripped_it() -> None:
    """grpc-go pinged every 10 s; the server sent a response after 40 s, so the strikes began anew at the next PING."""
    capture = recording("too-many-pings")
    found = must(too_many_pings, decode(capture.files))
    assert (found.severity, found.confidence, found.lost_ns) == ("warning", "high", None)
    assert found.metrics["closed_connections"] == 1
    assert (found.metrics["pings"], found.metrics["strikes"]) == (4, 3)
    assert found.metrics["interval_min_ns"] == pytest.approx(10e9, rel=0.01)
    assert found.metrics["purpose"] == "keepalive"
    assert [item.packet for item in found.evidence] == [33, 39, 43, 46, 47]
    assert "after the PING in packet 46" in found.verdict
    assert found.remedies[0].implementation == "grpc-go"


def test_the_setting_is_that_of_the_client_that_was_seen() -> None:
    """connect-es pings an idle connection each second."""
    found = must(too_many_pings, decode([recorded("wild/connect-node-pings.pcap.zst")]))
    assert (found.metrics["pings"], found.remedies[0].implementation) == (4, "connect-es")


def test_synthetic() -> None:
    capture = synthetic("failures-too-many-pings")
    found = must(too_many_pings, decode([capture.file]))
    assert (found.severity, found.metrics["pings"], found.metrics["open_rpcs"]) == ("warning", 4, 1)


@pytest.mark.parametrize(("pings", "data", "fires"), [(3, False, False), (4, False, True), (9, True, False)])
def test_without_goaway_the_third_strike_is_for_information(
    tmp_path: Path, pings: int, data: bool, fires: bool
) -> None:
    """The first PING is none, the fourth the third strike; data of the server in between takes all strikes away."""
    found = told(too_many_pings, played(pinging(pings, data=data), tmp_path))
    assert (found is not None) is fires
    if found:
        assert (found.severity, found.confidence) == ("info", "medium")
        assert (found.metrics["closed_connections"], found.metrics["strikes"]) == (0, 3)


def test_another_policy_of_the_server_is_less_certain(tmp_path: Path) -> None:
    """GOAWAY after the second PING: by the default policy that is one strike only."""
    found = must(too_many_pings, played(pinging(2, goaway=True), tmp_path, close="server"))
    assert (found.severity, found.confidence, found.metrics["strikes"]) == ("warning", "medium", 1)


def test_calm_for_another_reason_is_not_about_pings() -> None:
    tables = tables_of_scene("failures-too-many-pings")
    quiet = changed(tables, "pings", strikes=[0] * len(tables.pings.strikes))
    assert told(too_many_pings, changed(quiet, "goaways", reason=[0])) is None
    assert told(too_many_pings, changed(quiet, "goaways", code=[0])) is None


def test_goaway_without_its_pings_is_skipped() -> None:
    tables = tables_of_scene("failures-too-many-pings")
    assert "lacks the PINGs" in skipped(too_many_pings, changed(tables, "pings", ack=np.ones(len(tables.pings.ack))))


def test_severity() -> None:
    tables = tables_of_scene("failures-too-many-pings")
    again = must(too_many_pings, repeated(tables, "goaways", 0, 3))
    assert again.severity == "critical"
    assert "and 2 more connections" in again.verdict
    assert must(too_many_pings, repeated(tables, "goaways", 0, 2)).severity == "warning"
    assert must(too_many_pings, changed(tables, "goaways", open_rpcs=[3])).severity == "critical"
    assert must(too_many_pings, changed(tables, "goaways", open_rpcs=[2])).severity == "warning"


def test_the_estimators_pings_have_another_remedy() -> None:
    tables = tables_of_scene("failures-too-many-pings")
    bdp = must(too_many_pings, changed(tables, "pings", purpose=np.ones(len(tables.pings.purpose))))
    assert bdp.metrics["purpose"] == "bdp"
    assert "fixed windows" in bdp.verdict
    assert "keepalive.ClientParameters" not in bdp.remedies[0].knob


def edges(_folder: Path) -> Iterator[Tables]:
    """Three lost calls, and three connections that lost none."""
    tables = tables_of_scene("failures-too-many-pings")
    yield changed(tables, "goaways", open_rpcs=[3])
    yield changed(repeated(tables, "goaways", 0, 3), "goaways", open_rpcs=[0] * 3)
