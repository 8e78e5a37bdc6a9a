"""The core's folders import each other one way: the arrows between them stand in one list. Two crates stand on it."""

from __future__ import annotations

import itertools
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support import REPOSITORY

CORE = REPOSITORY / "analyzer" / "core"
SOURCES = CORE / "src"
ABOVE = {"parquet": {"grpcdiag-core"}, "python": {"grpcdiag-core", "grpcdiag-parquet"}}
"""The crates above the core, and which of ours each imports."""
OURS = "grpcdiag-python"
"""The one crate whose features differ on purpose."""

# From the ground up: a folder imports only folders that stand before it, and only those named here.
ARROWS = {
    "at": set(),
    "limits": set(),
    "state_fields": set(),
    "capture_file": {"limits"},
    "packet": {"limits"},
    "clock_steps": {"capture_file", "limits", "packet", "state_fields"},
    "packet_order": {"capture_file", "limits", "packet"},
    "store": {"limits", "state_fields"},
    "tcp": {"at", "limits", "packet", "state_fields", "store"},
    "tls": {"limits"},
    "http1": {"limits"},
    "http2/hpack": {"limits", "state_fields"},
    "http2/frame": {"at", "limits", "store"},
    "http2/observe": {"at", "http2/frame", "limits", "store"},
    "http2/connection": {
        "at",
        "http1",
        "http2/frame",
        "http2/hpack",
        "http2/observe",
        "limits",
        "state_fields",
        "store",
        "tcp",
    },
    "grpc": {"at", "http1", "http2/connection", "http2/frame", "http2/hpack", "limits", "state_fields", "store", "tcp"},
    "waits": {"at", "grpc", "http2/connection", "http2/frame", "limits", "store", "tcp"},
    "connection": {
        "at",
        "grpc",
        "http2/connection",
        "http2/hpack",
        "packet",
        "state_fields",
        "store",
        "tcp",
        "tls",
        "waits",
    },
    "run": {
        "at",
        "capture_file",
        "clock_steps",
        "connection",
        "limits",
        "packet",
        "packet_order",
        "state_fields",
        "store",
        "tls",
    },
    "scrub": {
        "at",
        "capture_file",
        "connection",
        "grpc",
        "http2/connection",
        "http2/frame",
        "http2/hpack",
        "http2/observe",
        "limits",
        "packet",
        "run",
        "store",
        "tls",
    },
    "processes": {"limits"},
    "rows": set(),
    "lib": set(),
}
# Folders whose own folders are told apart.
OPEN = {"http2"}
# Dissectors of tunnels call each other, because a tunnel may hold any packet, another tunnel among them.
RECURSIVE = {
    f"packet/{name}.rs"
    for name in ("ethernet", "geneve", "gre", "ip", "ipv4", "ipv6", "mpls", "ppp", "quoted", "udp", "vxlan")
}

TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))? )?mod \w+ \{.*", re.DOTALL)
COMMENT = re.compile(r"//[^\n]*")
TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
USE = re.compile(r"\buse ([^;]+);")
VISIBILITY = re.compile(r"\bpub\([^)]*\)")
PATH = re.compile(r"(?<![\w:.])[a-z_]\w*(?:::\w+)+")


def sources() -> Iterator[Path]:
    for path in sorted(SOURCES.rglob("*.rs")):
        if "tests" not in path.parts and path.name != "tests.rs":
            yield path


def module(path: Path) -> tuple[str, ...]:
    """The module of a file, below the crate."""
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


MODULES = {module(path): path for path in sources()}


@cache
def code(path: Path) -> str:
    """A file without comments, texts and unit tests."""
    text = COMMENT.sub("", TEST_MODULE.sub("", path.read_text()))
    return VISIBILITY.sub("pub", TEXT.sub('""', text))


def split(tree: str) -> Iterator[str]:
    """The parts of a use tree between commas of its outermost level."""
    depth, part = 0, ""
    for character in tree:
        depth += (character == "{") - (character == "}")
        if character == "," and not depth:
            yield part
            part = ""
        else:
            part += character
    if part.strip():
        yield part


def leaves(tree: str, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every path that a use tree names."""
    head, brace, rest = tree.strip().partition("{")
    names = tuple(name for name in head.split(" as ")[0].strip().split("::") if name)
    if not brace:
        yield before + names
        return
    for part in split(rest[: rest.rindex("}")]):
        yield from leaves(part, before + names)


def absolute(names: tuple[str, ...], inside: tuple[str, ...]) -> tuple[str, ...] | None:
    """A path from the crate's root; `None` for one of another crate."""
    if names[0] == "crate":
        return names[1:]
    if names[0] == "self":
        return inside + names[1:]
    if names[0] != "super":
        return inside + names if (*inside, names[0]) in MODULES else None
    while names and names[0] == "super":
        inside, names = inside[:-1], names[1:]
    return inside + names


def reexported(path: Path) -> dict[str, tuple[str, ...]]:
    """Names that a file hands on from its children, with where they come from."""
    names = {}
    for tree in re.findall(r"\bpub use ([^;]+);", code(path)):
        for leaf in leaves(tree):
            if found := absolute(leaf, module(path)):
                names[found[-1]] = found
    return names


def target(names: tuple[str, ...]) -> Path | None:
    """The file that defines what a path names."""
    for length in range(len(names), -1, -1):
        if path := MODULES.get(names[:length]):
            rest = names[length:]
            handed_on = reexported(path).get(rest[0]) if rest else None
            return target(handed_on) if handed_on else path
    return None


@cache
def imports(path: Path) -> set[Path]:
    """The files that a file imports; what it merely hands on from its children does not count."""
    text = code(path)
    inside = module(path)
    own = re.sub(r"\bpub use [^;]+;", "", text)
    named = [leaf for tree in USE.findall(own) for leaf in leaves(tree)]
    named += [tuple(found.split("::")) for found in PATH.findall(USE.sub("", own))]
    found = {target(names) for leaf in named if (names := absolute(leaf, inside)) is not None}
    return {other for other in found if other and other != path}


def folder(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return "/".join(parts[:2]) if parts[0] in OPEN and len(parts) > 2 else parts[0]


@cache
def arrows() -> dict[str, set[str]]:
    """Which folder imports which, as the sources have it."""
    found: dict[str, set[str]] = {}
    for path in sources():
        found.setdefault(folder(path), set()).update(folder(other) for other in imports(path))
    return {name: others - {name} for name, others in found.items() if name not in OPEN}


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Groups of nodes that reach each other."""
    reach = {node: {node} for node in graph}
    changed = True
    while changed:
        changed = False
        for seen in reach.values():
            more = {far for near in seen for far in graph.get(near, set())} - seen
            seen |= more
            changed = changed or bool(more)
    groups = {frozenset(other for other in reach[node] if node in reach.get(other, set())) for node in graph}
    return [set(group) for group in groups if len(group) > 1]


def test_every_folder_stands_in_the_list() -> None:
    assert set(arrows()) == set(ARROWS)


@pytest.mark.parametrize("name", ARROWS)
def test_a_folder_imports_what_the_list_says(name: str) -> None:
    found = arrows()[name]
    assert found <= ARROWS[name], f"new arrows of {name}: {sorted(found - ARROWS[name])}"
    assert found >= ARROWS[name], f"{name} imports these no longer: {sorted(ARROWS[name] - found)}"


def test_no_arrow_runs_back_up() -> None:
    order = list(ARROWS)
    for name, others in ARROWS.items():
        above = {other for other in others if order.index(other) >= order.index(name)}
        assert not above, f"{name} imports {above}, which stand above it"


def test_files_import_each_other_one_way() -> None:
    graph = {
        str(path.relative_to(SOURCES)): {str(other.relative_to(SOURCES)) for other in imports(path)}
        for path in sources()
    }
    found = [sorted(circle) for circle in circles(graph) if not circle <= RECURSIVE]
    assert not found


def test_the_walk_finds_imports() -> None:
    def names(path: str) -> set[str]:
        return {str(other.relative_to(SOURCES)) for other in imports(SOURCES / path)}

    assert "tcp/events.rs" in names("connection/content.rs")
    assert "http2/hpack/decoder.rs" in names("http2/connection/side.rs")  # handed on by the folder
    assert "http2/frame/settings.rs" in names("scrub/control.rs")  # named in a function
    assert "grpc/connection.rs" not in names("http2/connection/http2.rs")


def test_crates_stand_on_each_other_one_way() -> None:
    """Whoever tests the core compiles neither Python's face nor Arrow."""
    for name, expected in {".": set(), **ABOVE}.items():
        manifest = tomllib.loads((CORE / name / "Cargo.toml").read_text())
        assert {other for other in manifest["dependencies"] if other.startswith("grpcdiag")} == expected
        foreign = {"arrow-array", "numpy", "parquet", "pyo3"} & set(manifest["dependencies"])
        assert foreign == {".": set(), "parquet": {"arrow-array", "parquet"}, "python": {"numpy", "pyo3"}}[name]


BUILDS = {
    "make demo": "--package grpcdiag-python --no-default-features --edges normal,build",
    "make dev": "--package grpcdiag-python --edges normal,build",
    "tests": "--package grpcdiag-core --package grpcdiag-parquet --edges normal,build,dev",
}


def test_each_crate_is_compiled_once_for_all_builds() -> None:
    """With other features `make dev` after `make demo`, or the tests, would compile the core again."""
    found = {name: features(options.split()) for name, options in BUILDS.items()}
    assert all("grpcdiag-core" in " ".join(crates) for crates in found.values())
    for one, other in itertools.combinations(found, 2):
        both = {crate for crate in found[one].keys() & found[other].keys() if not crate.startswith(OURS)}
        assert {crate: found[one][crate] for crate in both} == {crate: found[other][crate] for crate in both}


def features(options: list[str]) -> dict[str, set[str]]:
    """Every crate that a build compiles, with its features; some have others where build scripts use them."""
    listed = ["cargo", "tree", "--offline", "--locked", "--prefix", "none", "--format", "{p}|{f}"]
    done = subprocess.run([*listed, *options], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    found: dict[str, set[str]] = {}
    for line in filter(None, done.stdout.splitlines()):
        crate, _, of_crate = line.removesuffix(" (*)").partition("|")
        found.setdefault(crate.partition(" (")[0], set()).add(of_crate)
    return found


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


PANICS = re.compile(r"\.(unwrap|expect)(_err)?\(|\b(panic|unreachable|todo|unimplemented)!|(?<!const \{ )\bassert\w*!")


def test_no_code_of_the_core_panics_on_purpose() -> None:
    """Bytes from a capture must not cause a panic. Assertions of the compiler (`const`) cost nobody anything."""
    found = [
        f"{path.relative_to(CORE)}: {line.strip()}"
        for path in [*sources(), *(path for name in ABOVE for path in (CORE / name / "src").glob("*.rs"))]
        if path.name != "tests.rs"
        for line in code(path).splitlines()
        if PANICS.search(line) and not line.startswith("const _: ")
    ]
    assert not found
    assert PANICS.search("let one = other.unwrap();") and not PANICS.search("one.unwrap_or_default()")
