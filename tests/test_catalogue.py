"""A finding's id is one name in five places: detector, fixtures, test, docs page, `grpcdiag explain`."""

from __future__ import annotations

import ast
import inspect
import json
import re
from typing import Any

import pytest
from msgspec import Struct
from support import FINDINGS, RECORDED, REPOSITORY, SYNTHETICS, recorded

from grpcdiag.analyzer import detectors
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.detectors import DETECTORS, HEADINGS, Detector
from grpcdiag.fixtures.synthetic.catalogue import CATALOGUE

IDS = """client-idle-gap shared-connection request-batching small-packets ping-storm window-update-storm delayed-data
    slow-start-after-idle initial-congestion-window receive-window-stall stream-window-stall connection-window-stall
    max-concurrent-streams loss-recovery delayed-ack-nagle server-latency head-of-line-blocking connection-churn
    too-many-pings connection-closed-early rpc-errors deadline-exceeded cancelled header-overhead capture-quality"""

# Committed real captures on which a finding fires, and on which it must not.
REAL = {
    "cancelled": (["lab/cancelled"], ["deadline-exceeded", "rpc-errors"]),
    "capture-quality": (["truncated"], ["impl-go", "rpc-errors", "max-concurrent-streams"]),
    "client-idle-gap": (["lab/client-idle-gap"], ["any", "ydb-unary-single-inflight1"]),
    "connection-churn": (["lab/connection-churn"], ["impl-go", "ydb-unary-single-inflight1"]),
    "connection-closed-early": (
        ["too-many-pings", "lab/connection-closed-early"],
        ["impl-go", "impl-js", "deadline-exceeded"],
    ),
    "connection-window-stall": (
        ["lab/connection-window-stall"],
        ["impl-go", "impl-java", "impl-js", "rtt205-go-16000"],
    ),
    "deadline-exceeded": (["deadline-exceeded"], ["rpc-errors", "impl-go"]),
    "delayed-ack-nagle": (["lab/delayed-ack-nagle"], ["impl-cpp", "impl-go", "impl-tonic", "rtt205-go-16000"]),
    "delayed-data": (
        ["rtt205-go-14000", "rtt205-go-16000", "rtt205-py-16000", "lab/delayed-data"],
        ["impl-cpp", "impl-go", "impl-java", "impl-js", "impl-py", "impl-tonic"],
    ),
    "head-of-line-blocking": (["lab/head-of-line-blocking"], ["impl-cpp", "impl-go", "impl-tonic", "rtt205-go-16000"]),
    "header-overhead": (["lab/header-overhead"], ["impl-go", "ydb-unary-single-inflight1"]),
    "initial-congestion-window": (
        ["rtt205-go-14000", "rtt205-go-16000", "rtt205-go-32000", "rtt205-go-32000-noslowstart", "rtt205-py-16000"],
        ["impl-go", "impl-java", "any", "ydb-unary-single-inflight1"],
    ),
    "loss-recovery": (["lab/loss-recovery"], ["impl-go", "rtt205-go-16000", "too-many-pings"]),
    "max-concurrent-streams": (["max-concurrent-streams"], ["max-concurrent-streams-control"]),
    "ping-storm": (["rpc-errors", "lab/ping-storm"], ["impl-go", "rtt205-go-16000"]),
    "receive-window-stall": (["lab/receive-window-stall"], ["impl-go", "impl-java", "impl-js", "rtt205-go-16000"]),
    "request-batching": (["lab/request-batching"], ["any", "ydb-unary-single-inflight1"]),
    "rpc-errors": (["rpc-errors", "impl-go", "impl-py"], ["deadline-exceeded", "ipv6"]),
    "server-latency": (["max-concurrent-streams-control"], ["impl-java", "rtt205-go-14000", "rpc-errors"]),
    "shared-connection": (["lab/shared-connection-single-8-grpc-go"], ["any", "ydb-unary-single-inflight1"]),
    "slow-start-after-idle": (
        ["rtt205-go-16000", "rtt205-py-16000", "lab/slow-start-16000-idle-sysctl1-grpc-c++"],
        ["rtt205-go-14000", "rtt205-go-32000-noslowstart"],
    ),
    "small-packets": (["lab/ping-storm"], ["impl-tonic", "max-concurrent-streams-control"]),
    "stream-window-stall": (["lab/stream-window-stall"], ["impl-go", "impl-java", "impl-js", "rtt205-go-16000"]),
    "too-many-pings": (["too-many-pings", "lab/too-many-pings"], ["impl-go", "impl-py", "rtt205-go-16000"]),
    "window-update-storm": (["rpc-errors", "lab/window-update-storm"], ["impl-go", "ydb-unary-single-inflight1"]),
}

every_detector = pytest.mark.parametrize("detector", [pytest.param(d, id=d.id) for d in DETECTORS])


def file_of(detector: Detector) -> str:
    return detector.id.replace("-", "_")


def capture(name: str) -> str:
    """Path of a committed capture, compressed or not."""
    return recorded(f"{name}.pcap.gz" if (RECORDED / f"{name}.pcap.gz").is_file() else f"{name}.pcap")


def sections(page: str) -> dict[str, str]:
    """Heading to text."""
    parts = re.split(r"^(.+)\n-{3,}$", inspect.cleandoc(page), flags=re.MULTILINE)
    assert all(len(parts[i].strip()) for i in range(1, len(parts), 2))
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))


def test_ids_are_the_contracts_and_unique() -> None:
    ids = [detector.id for detector in DETECTORS]
    assert len(set(ids)) == len(ids)
    assert set(ids) <= set(IDS.split())


def test_every_detector_file_is_registered() -> None:
    folder = REPOSITORY / "analyzer" / "detectors"
    files = {path.stem for path in folder.glob("*.py") if path.stem != "__init__" and not path.stem.startswith("_")}
    assert files == {file_of(detector) for detector in DETECTORS}


@every_detector
def test_the_file_has_the_ids_name_and_shape(detector: Detector) -> None:
    module = getattr(detectors, file_of(detector))
    assert detector.id == module.ID
    limits: Any = module.Limits()
    assert isinstance(limits, Struct)
    with pytest.raises(AttributeError, match="immutable"):
        setattr(limits, limits.__struct_fields__[0], 0)
    assert list(inspect.signature(module.detect).parameters) == ["tables", "limits"]


@every_detector
def test_every_limit_names_its_source(detector: Detector) -> None:
    """A string with a source in brackets follows each threshold."""
    module = getattr(detectors, file_of(detector))
    (limits,) = [
        n for n in ast.parse(inspect.getsource(module)).body if isinstance(n, ast.ClassDef) and n.name == "Limits"
    ]
    body = limits.body[1:]
    for threshold, said in zip(body[::2], body[1::2], strict=True):
        assert isinstance(threshold, ast.AnnAssign)
        assert isinstance(said, ast.Expr)
        assert isinstance(said.value, ast.Constant)
        assert re.search(r"\(.+\)", str(said.value.value)), f"{ast.unparse(threshold)} has no source"


@every_detector
def test_the_docstring_has_every_heading_in_order(detector: Detector) -> None:
    found = sections(detector.page)
    assert tuple(found) == HEADINGS
    for heading, text in found.items():
        assert len(text) > 40, f"{heading} says next to nothing"


@every_detector
def test_there_is_a_test(detector: Detector) -> None:
    assert (REPOSITORY / "tests" / "analyzer" / f"test_{file_of(detector)}.py").is_file()


@every_detector
def test_the_docs_page_says_what_the_docstring_says(detector: Detector) -> None:
    page = (FINDINGS / f"{detector.id}.md").read_text()
    flat = re.sub(r"[\s`*#<>,-]+", " ", page)
    for heading, text in sections(detector.page).items():
        assert heading in page
        for paragraph in text.split("\n\n"):
            assert re.sub(r"[\s`*#<>,-]+", " ", paragraph).strip() in flat, (
                f"{heading}: the page is behind the docstring"
            )


@every_detector
def test_real_captures_fire_and_are_quiet(detector: Detector) -> None:
    firing, quiet = REAL[detector.id]
    assert firing
    assert quiet
    for name in (*firing, *quiet):
        found = {finding.id for finding in analyze([capture(name)]).findings}
        assert (detector.id in found) == (name in firing), name


@every_detector
def test_synthetic_captures_fire_and_are_quiet(detector: Detector) -> None:
    firing = [s for s in SYNTHETICS if detector.id in s.truth.get("findings", ())]
    quiet = [s for s in SYNTHETICS if detector.id in s.truth.get("quiet", ())]
    assert firing
    assert quiet


def test_recorded_captures_have_their_truth_and_a_line_in_the_readme() -> None:
    readme = (RECORDED / "README.md").read_text()
    captures = [path for path in RECORDED.iterdir() if path.name.endswith((".pcap", ".pcapng"))]
    assert captures
    for path in captures:
        name = path.name.split(".")[0]
        assert (RECORDED / f"{name}.truth.json").is_file()
        assert f"{name}.pcap" in readme
        assert json.loads((RECORDED / f"{name}.truth.json").read_text())["client_report"]


def test_synthetic_captures_are_the_catalogues() -> None:
    assert {s.name for s in SYNTHETICS} == set(CATALOGUE)
