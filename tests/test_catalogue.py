"""A finding's id is one name in five places: detector, fixtures, test, docs page, `grpcdiag explain`."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from msgspec import Struct
from support import FINDINGS, RECORDED, REPOSITORY, SYNTHETICS, recorded, synthetic

from grpcdiag.analyzer import detectors
from grpcdiag.analyzer._core import STATUSES
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.detector import FIGURES, HEADINGS, Detector
from grpcdiag.fixtures.synthetic.catalogue import CATALOGUE

sys.path.append(str(REPOSITORY / "docs"))
from generating.examples import analyze_recorded

DETECTOR_TESTS = REPOSITORY / "tests" / "detectors"
sys.path.append(str(DETECTOR_TESTS))  # each has lists of captures that are read here

every_detector = pytest.mark.parametrize("detector", [pytest.param(d, id=d.id) for d in DETECTORS])


def module_of(detector: Detector) -> Any:
    return import_module(f"{detectors.__name__}.{file_of(detector)}")


def file_of(detector: Detector) -> str:
    return detector.id.replace("-", "_")


def capture(name: str) -> str:
    """Path of a committed capture, compressed or not."""
    suffixes = (".pcap.gz", ".pcap.zst", ".pcap")
    return recorded(next(f"{name}{suffix}" for suffix in suffixes if (RECORDED / f"{name}{suffix}").is_file()))


@cache
def analyze_synthetic(path: str) -> Analysis:
    try:
        return analyze([path])
    except NoGrpcError as error:
        assert error.analysis
        return error.analysis


def sections(page: str) -> dict[str, str]:
    """Heading to text."""
    parts = re.split(r"^(.+)\n-{3,}$", inspect.cleandoc(page), flags=re.MULTILINE)
    assert all(len(parts[i].strip()) for i in range(1, len(parts), 2))
    return dict(zip(parts[1::2], (text.strip() for text in parts[2::2]), strict=True))


def test_ids_are_unique() -> None:
    ids = [detector.id for detector in DETECTORS]
    assert len(set(ids)) == len(ids)


def test_hidden_files_are_no_detectors() -> None:
    """Archives of macOS have `._cancelled.py`, Emacs makes `.#cancelled.py`."""
    program = (
        "import os; listed = os.listdir; os.listdir = lambda at: [*listed(at), '._cancelled.py', '.#cancelled.py'];"
        "from grpcdiag.analyzer.detectors import DETECTORS; print(len(DETECTORS))"
    )
    assert int(subprocess.check_output([sys.executable, "-c", program])) == len(DETECTORS)


@every_detector
def test_the_file_has_the_ids_name_and_shape(detector: Detector) -> None:
    module = module_of(detector)
    assert detector.id == module.ID
    limits: Any = module.Limits()
    assert isinstance(limits, Struct)
    with pytest.raises(AttributeError, match="immutable"):
        setattr(limits, limits.__struct_fields__[0], 0)
    assert list(inspect.signature(module.detect).parameters) == ["tables", "limits"]


@every_detector
def test_every_limit_names_its_source(detector: Detector) -> None:
    """A string with a source in brackets follows each threshold."""
    (limits,) = ast.parse(inspect.getsource(module_of(detector).Limits)).body
    assert isinstance(limits, ast.ClassDef)
    body = limits.body[ast.get_docstring(limits) is not None :]
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
    assert (DETECTOR_TESTS / f"test_{file_of(detector)}.py").is_file()


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
    test = import_module(f"test_{file_of(detector)}")
    firing, quiet = test.FIRES_ON, test.QUIET_ON
    assert firing
    assert quiet
    for name in (*firing, *quiet):
        found = {finding.id for finding in analyze_recorded(capture(name)).findings}
        assert (detector.id in found) == (name in firing), name


@pytest.mark.parametrize("detector", [pytest.param(d, id=d.id) for d in DETECTORS if not d.about.needs_processes])
def test_synthetic_captures_fire_and_are_quiet(detector: Detector) -> None:
    firing = [s for s in SYNTHETICS if detector.id in s.truth.get("findings", ())]
    quiet = [s for s in SYNTHETICS if detector.id in s.truth.get("quiet", ())]
    assert firing
    assert quiet
    for built in firing:
        (found,) = (f for f in analyze_synthetic(built.file).findings if f.id == detector.id)
        if "lost_ns" in built.truth:
            assert found.lost_ns == pytest.approx(built.truth["lost_ns"], rel=0.001)
    for built in quiet:
        assert detector.id not in {f.id for f in analyze_synthetic(built.file).findings}, built.name


@every_detector
def test_its_costs_are_metrics_of_its_findings(detector: Detector) -> None:
    source = inspect.getsource(module_of(detector))
    for cost in detector.about.costs:
        assert source.count(f'"{cost.metric}"') > 1, f"no finding has {cost.metric}"


@every_detector
def test_what_it_explains_is_a_cause_a_status_or_a_figure(detector: Detector) -> None:
    assert set(detector.about.explains) <= {*CAUSES, *STATUSES, *FIGURES}


def test_no_synthetic_capture_without_retransmissions_has_loss_recovery() -> None:
    for built in SYNTHETICS:
        if any(finding.id == "loss-recovery" for finding in analyze_synthetic(built.file).findings):
            assert decode([built.file]).connections.retransmitted_packets.any(), built.name


GRAVE = {
    "capture_hole": "capture-quality",
    "goaway": "too-many-pings",
    "pcapng": "capture-quality",
    "retransmission": "loss-recovery",
    "rst_stream": "rpc-errors",
    "settings_change": "stream-window-stall",
    "trailers_only": "rpc-errors",
}
"""What was built into a capture that is about decoding, as a finding above `info`."""


@pytest.mark.parametrize(
    "name", [s.name for s in SYNTHETICS if not s.truth.get("findings") and not s.truth.get("quiet")]
)
def test_synthetic_captures_about_decoding_have_no_other_finding(name: str) -> None:
    analysis = analyze_synthetic(synthetic(name).file)
    assert [f.id for f in analysis.findings if f.severity != "info" or f.lost_ns] == [
        GRAVE[n] for n in GRAVE if n == name
    ]


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
