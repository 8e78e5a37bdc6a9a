"""Imports run one way, and only the command line opens files and prints."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import REPOSITORY

LAYERS = {
    "analyzer": REPOSITORY / "analyzer",
    "capture": REPOSITORY / "capture",
    "reports": REPOSITORY / "reports",
    "fleet": REPOSITORY / "fleet",
    "cli": REPOSITORY / "src" / "grpcdiag" / "cli",
    "files": REPOSITORY / "src" / "grpcdiag" / "files",
}
# What each layer may import of the package.
ALLOWED = {
    "analyzer": {"analyzer"},
    "capture": {"capture", "files"},
    "files": {"files"},
    "reports": {"reports", "analyzer"},
    "fleet": {"fleet", "reports", "analyzer", "files"},
    "cli": {
        "cli",
        "fleet",
        "reports",
        "analyzer",
        "capture",
        "files",
        "fixtures",
    },  # of fixtures the lab alone, see below
}
# Reports read one Analysis; only the tables' own rendering and drawings of their rows against time read tables.
READS_TABLES = {"columns.py", "perfetto.py", "rows.py", "timeline"}
WRITES = {"print", "open", "input", "breakpoint", "exit", "quit"}
STREAMS = {("sys", "stdout"), ("sys", "stderr"), ("sys", "stdin"), ("sys", "exit"), ("sys", "argv"), ("os", "system")}
FILE_METHODS = {"write_text", "write_bytes", "read_bytes", "unlink", "mkdir", "touch", "rename"}

# Columns larger than the memory are in temporary files, which have no name.
REACHES = {"spilled.py": {"tempfile"}}

FILES = [
    pytest.param(layer, path, id=f"{layer}/{path.name}")
    for layer, folder in LAYERS.items()
    for path in sorted(folder.rglob("*.py"))
    if "core" not in path.parts
]
SILENT = [p for p in FILES if p.values[0] in ("analyzer", "reports")]


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imported(layer: str, path: Path) -> Iterator[str]:
    """Absolute names of the modules of this package that a file imports."""
    inside = path.relative_to(LAYERS[layer]).parent.parts
    package = ("grpcdiag", layer, *inside)
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "grpcdiag")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.split(".")[0] == "grpcdiag":
                yield from (f"{module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("layer", "path"), FILES)
def test_imports_run_one_way(layer: str, path: Path) -> None:
    layers = {name.split(".")[1] for name in imported(layer, path)} & (set(LAYERS) | {"fixtures"})
    assert layers <= ALLOWED[layer], f"{layer} imports {layers - ALLOWED[layer]}"


def test_the_command_line_knows_the_lab_and_no_other_fixtures() -> None:
    files = sorted(LAYERS["cli"].rglob("*.py"))
    names = {name for path in files for name in imported("cli", path) if name.startswith("grpcdiag.fixtures")}
    assert names
    assert all(name.startswith("grpcdiag.fixtures.lab") for name in names), names


def test_the_walk_finds_imports() -> None:
    assert "grpcdiag.reports.json_v1" in set(imported("cli", LAYERS["cli"] / "analyze.py"))
    assert "grpcdiag.analyzer.model.analysis.Analysis" in set(
        imported("reports", LAYERS["reports"] / "terminal" / "__init__.py")
    )
    assert "grpcdiag.analyzer.tables.Tables" in set(
        imported("analyzer", LAYERS["analyzer"] / "detectors" / "__init__.py")
    )
    assert len(FILES) > 20


@pytest.mark.parametrize("path", sorted(LAYERS["reports"].rglob("*.py")), ids=lambda path: path.name)
def test_reports_read_an_analysis_and_no_tables(path: Path) -> None:
    internals = {
        name
        for name in imported("reports", path)
        if name.startswith(("grpcdiag.analyzer.tables", "grpcdiag.analyzer.decode.decode"))
    }
    assert not internals or {path.name, path.parent.name} & READS_TABLES, internals


@pytest.mark.parametrize(("layer", "path"), SILENT)
def test_only_the_command_line_opens_files_and_prints(layer: str, path: Path) -> None:
    """The schema is package data, which importlib.resources reads."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in WRITES, f"{path.name}:{node.lineno}: {node.func.id}()"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in STREAMS, f"{path.name}:{node.lineno}: {node.value.id}.{node.attr}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in FILE_METHODS, f"{path.name}:{node.lineno}: .{node.func.attr}()"


@pytest.mark.parametrize(("layer", "path"), SILENT)
def test_no_layer_reaches_for_the_system(layer: str, path: Path) -> None:
    modules = {"subprocess", "socket", "shutil", "tempfile", "logging", "typer"} - REACHES.get(path.name, set())
    for node in ast.walk(tree(path)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert not {name.split(".")[0] for name in names} & modules, (
            f"{path.name}:{getattr(node, 'lineno', 0)}: {names}"
        )
