"""Imports run one way, and only the command line opens files and prints."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support import REPOSITORY

from grpcdiag.analyzer import detectors

sys.path.append(str(REPOSITORY / "docs"))
from generating.rooms import LAYERS, list_files, list_imports, read_arrows

# Every arrow between rooms (docs/generating/rooms.py). Each room imports only rooms that stand above it. `_core` is the
# core's face in Python; `interruption`, `streams` and `version` are modules of the package itself.
ARROWS = {
    "analyzer.tables": "_core",
    "analyzer.model": "_core analyzer.tables",
    "analyzer.summary": "_core analyzer.tables analyzer.model",
    "analyzer.decode": "_core analyzer.tables analyzer.model analyzer.summary",
    "analyzer.software": "analyzer.model",
    "analyzer.facts": "_core analyzer.tables analyzer.model analyzer.summary analyzer.software",
    "analyzer.families": "analyzer.tables analyzer.model analyzer.summary analyzer.software analyzer.facts",
    "analyzer.detectors": "_core analyzer.tables analyzer.model analyzer.summary analyzer.software analyzer.facts "
    "analyzer.families",
    "analyzer.encrypted": "analyzer.tables analyzer.model analyzer.software analyzer.facts analyzer.detectors",
    "analyzer.sidecar": "_core analyzer.tables analyzer.model analyzer.decode",
    "analyzer.measured": "_core analyzer.tables analyzer.model analyzer.summary",
    "analyzer.selection": "_core analyzer.tables analyzer.model analyzer.summary analyzer.decode",
    "analyzer.hops": "_core analyzer.tables analyzer.model analyzer.summary analyzer.decode analyzer.software "
    "analyzer.facts analyzer.selection",
    "analyzer.verify": "_core analyzer.tables",
    "analyzer.views": "_core analyzer.tables analyzer.model analyzer.summary analyzer.decode analyzer.detectors "
    "analyzer.selection analyzer.hops",
    "analyzer.analysis": "_core analyzer.tables analyzer.model analyzer.summary analyzer.decode analyzer.detectors "
    "analyzer.encrypted analyzer.sidecar analyzer.selection analyzer.hops analyzer.facts",
    "analyzer.live": "_core analyzer.tables analyzer.model analyzer.summary analyzer.decode analyzer.analysis",
    "analyzer.scrub": "_core analyzer.tables analyzer.model analyzer.decode analyzer.sidecar analyzer.analysis",
    "analyzer.two_captures": "_core analyzer.tables analyzer.model analyzer.summary analyzer.decode "
    "analyzer.detectors analyzer.sidecar analyzer.analysis",
    "files": "interruption",
    "capture.tracer": "",
    "capture": "_core analyzer.decode analyzer.sidecar capture.tracer files",
    "reports.shared": "analyzer.model analyzer.detectors",
    "reports.terminal": "analyzer.model reports.shared",
    "reports.tables": "_core analyzer.tables analyzer.model analyzer.summary analyzer.decode analyzer.selection "
    "analyzer.hops reports.shared",
    "reports.analysis_json": "analyzer.model",
    "reports.openmetrics": "analyzer.model analyzer.live",
    "reports.html": "_core analyzer.model analyzer.views reports.shared",
    "reports.compare": "_core analyzer.model analyzer.detectors reports.shared reports.analysis_json reports.html",
    "reports.ci": "_core analyzer.model analyzer.detectors reports.shared reports.compare",
    "reports.perfetto": "_core analyzer.tables analyzer.model analyzer.views reports.shared",
    "reports.otlp": "_core analyzer.tables analyzer.model analyzer.summary analyzer.views",
    "reports.timeline": "_core analyzer.tables analyzer.model analyzer.summary analyzer.views reports.shared",
    "reports.markdown": "analyzer.model reports.shared reports.terminal",
    "reports.scrub": "analyzer.model analyzer.scrub",
    "reports.verify": "_core analyzer.verify reports.shared reports.analysis_json analyzer.model",
    "reports.live_view": "analyzer.live analyzer.model",
    "reports.wireshark": "analyzer.tables analyzer.model reports.shared",
    "reports.attachment": "analyzer.model analyzer.detectors analyzer.views reports.shared reports.timeline "
    "reports.markdown",
    "fleet.recordings": "_core analyzer.decode analyzer.sidecar interruption",
    "fleet.dataset": "analyzer.tables analyzer.model reports.tables fleet.recordings interruption",
    "fleet.engines": "_core analyzer.tables analyzer.model analyzer.decode analyzer.sidecar analyzer.analysis "
    "analyzer.hops reports.tables fleet.recordings fleet.dataset interruption",
    "fleet.planning": "fleet.recordings fleet.dataset fleet.engines",
    "fleet.run": "fleet.recordings fleet.dataset fleet.engines fleet.planning",
    "fleet.answers": "analyzer.model reports.shared reports.terminal reports.html fleet.recordings "
    "fleet.dataset interruption",
    "cli.support": "files analyzer.tables analyzer.decode analyzer.detectors analyzer.sidecar analyzer.measured "
    "analyzer.selection capture reports.compare analyzer.two_captures reports.shared reports.tables fixtures "
    "interruption streams analyzer.model",
    "cli.formats": "",
    "cli.watching": "",
    "cli": "",
}
ANY = {"cli", "cli.formats", "cli.watching"}  # of the lab alone, see below
"""Rooms that may import any room that stands before them: the command line."""
# Reports read one Analysis; only the tables' own rendering and drawings of their rows against time read tables.
READS_TABLES = {"tables", "perfetto", "otlp", "timeline", "wireshark"}
WRITES = {"print", "open", "input", "breakpoint", "exit", "quit"}
STREAMS = {("sys", "stdout"), ("sys", "stderr"), ("sys", "stdin"), ("sys", "exit"), ("sys", "argv"), ("os", "system")}
FILE_METHODS = {"write_text", "write_bytes", "read_bytes", "unlink", "mkdir", "touch", "rename"}

# Columns larger than the memory are in temporary files, which have no name.
REACHES = {"disk_columns.py": {"tempfile"}}

FILES = list(list_files())
SILENT = [path for layer, path in FILES if layer in ("analyzer", "reports")]


arrows = cache(read_arrows)


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def test_every_room_is_listed() -> None:
    assert set(arrows()) <= set(ARROWS)


@pytest.mark.parametrize("name", ARROWS)
def test_a_room_imports_what_is_listed_and_nothing_else(name: str) -> None:
    modules = {"_core", "interruption", "streams", "version", "fixtures"}
    before = {*list(ARROWS)[: list(ARROWS).index(name)], *modules}
    listed = before if name in ANY else set(ARROWS[name].split())
    assert listed <= before, f"{name} stands before {listed - before}, which it imports"
    imports = arrows().get(name, frozenset())
    assert imports <= listed, f"{name} imports {imports - listed}: an arrow that is not listed"
    assert name in ANY or imports == listed, f"{name} does not import {listed - imports} any more"


def test_the_command_line_knows_the_lab_and_no_other_fixtures() -> None:
    files = sorted(LAYERS["cli"].rglob("*.py"))
    names = {name for path in files for name in list_imports("cli", path) if name.startswith("grpcdiag.fixtures")}
    assert names
    assert all(name.startswith("grpcdiag.fixtures.lab") for name in names), names


def test_the_walk_finds_imports() -> None:
    assert "grpcdiag.reports.analysis_json" in set(list_imports("cli", LAYERS["cli"] / "formats" / "analysis.py"))
    assert "grpcdiag.analyzer.model.analysis.Analysis" in set(
        list_imports("reports", LAYERS["reports"] / "terminal" / "__init__.py")
    )
    assert "grpcdiag.analyzer.model.detector.Detector" in set(
        list_imports("analyzer", LAYERS["analyzer"] / "detectors" / "__init__.py")
    )
    assert len(FILES) > 20


DETECTORS = LAYERS["analyzer"] / "detectors"
ENCRYPTED = LAYERS["analyzer"] / "encrypted.py"
"""Judges connections by the same findings as detectors, with their ids and limits."""


def names_of_detectors(names: Iterable[str]) -> set[str]:
    """Of names that a file imports those of the folder of detectors."""
    return {name for name in names if name.startswith("grpcdiag.analyzer.detectors")}


def test_a_detector_imports_no_other_one_and_no_helper() -> None:
    """What several detectors need is in analyzer/facts, analyzer/software or analyzer/families."""
    files = [path for path in DETECTORS.rglob("*.py") if path != DETECTORS / "__init__.py"]
    assert {path.name for path in files if names_of_detectors(list_imports("analyzer", path))} == set()
    assert {path.stem for path in files} == {one.id.replace("-", "_") for one in detectors.DETECTORS}


def test_others_know_of_detectors_only_their_list() -> None:
    others = {
        path: names_of_detectors(list_imports(layer, path))
        for layer, path in list_files()
        if DETECTORS not in path.parents
    }
    docs = [path for path in (REPOSITORY / "docs").rglob("*.py") if "man" not in path.parts]
    others |= {path: names_of_detectors(list_absolute_imports(path)) for path in docs}
    assert len(others.pop(ENCRYPTED)) > 1
    assert set().union(*others.values()) == {f"grpcdiag.analyzer.detectors.{name}" for name in ("ABOUTS", "DETECTORS")}


def test_no_other_file_names_a_finding() -> None:
    """What others do for a finding alone is a field of its detector's `ABOUT`."""
    ids = {one.id for one in detectors.DETECTORS}
    others = [(layer, path) for layer, path in FILES if DETECTORS not in path.parents]
    texts = ((layer, path.name, node.lineno, text) for layer, path in others for node, text in walk_texts(tree(path)))
    assert [one for one in texts if one[-1] in ids] == []


def walk_texts(module: ast.Module) -> Iterator[tuple[ast.Constant, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node, node.value


def test_the_walk_finds_texts() -> None:
    assert "ping-storm" in {text for _, text in walk_texts(tree(DETECTORS / "ping_storm.py"))}


def list_absolute_imports(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_reports_read_an_analysis_and_no_tables() -> None:
    for path in sorted(LAYERS["reports"].rglob("*.py")):
        internals = {
            name
            for name in list_imports("reports", path)
            if name.startswith(("grpcdiag.analyzer.tables", "grpcdiag.analyzer.decode.decode"))
        }
        assert not internals or {path.name, path.parent.name} & READS_TABLES, (path, internals)


def test_only_the_command_line_opens_files_prints_and_reaches_for_the_system() -> None:
    """The schema is package data, which importlib.resources reads."""
    wrong = {path: found for path in SILENT if (found := sorted(list_wrong(path)))}
    assert len(SILENT) > 200 and not wrong


def list_wrong(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of a file that open, print, or reach for the system."""
    modules = {"subprocess", "socket", "shutil", "tempfile", "logging", "typer"} - REACHES.get(path.name, set())
    for node in ast.walk(tree(path)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in WRITES:
                yield node.lineno, f"{name}()"
            case ast.Call(func=ast.Attribute(attr=name)) if name in FILE_METHODS:
                yield node.lineno, f".{name}()"
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if (name, attribute) in STREAMS:
                yield node.lineno, f"{name}.{attribute}"
            case ast.Import(names=names):
                yield from ((node.lineno, one.name) for one in names if one.name.split(".")[0] in modules)
            case ast.ImportFrom(module=str(name), level=0) if name.split(".")[0] in modules:
                yield node.lineno, name


def test_what_the_command_line_alone_does_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    lines = ["print(1)", "path.unlink()", "sys.exit()", "import json, os, socket", "from shutil import rmtree"]
    path.write_text("\n".join(["from .tempfile import one", *lines, "repr(path.read())"]))
    assert [line for line, _ in sorted(list_wrong(path))] == [2, 3, 4, 5, 6]


def test_files_import_each_other_one_way() -> None:
    """Not in circles either when an import serves types alone: whoever reads one file would have to read them all."""
    files = {module_of(layer, path): (layer, path) for layer, path in list_files()}
    imports = {module: {known_part(name, files) for name in list_imports(*where)} for module, where in files.items()}
    graph = {module: others - {None, module} for module, others in imports.items()}
    TopologicalSorter(graph).prepare()
    first, second = "grpcdiag.analyzer.analysis", "grpcdiag.analyzer.summary.figures"
    assert second in graph[first]
    with pytest.raises(CycleError):
        TopologicalSorter(graph | {second: graph[second] | {first}}).prepare()


def module_of(layer: str, path: Path) -> str:
    inside = path.relative_to(LAYERS[layer]).with_suffix("").parts
    return ".".join(["grpcdiag", layer, *(part for part in inside if part != "__init__")])


def known_part(name: str, known: Mapping[str, object]) -> str | None:
    """The module that an imported name belongs to: itself, or the one that defines it."""
    return name if name in known else parent if (parent := name.rpartition(".")[0]) in known else None
