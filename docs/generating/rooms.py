"""The rooms of the code and the arrows between them, read from its imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LAYERS = {
    "analyzer": REPOSITORY / "analyzer",
    "capture": REPOSITORY / "capture",
    "reports": REPOSITORY / "reports",
    "fleet": REPOSITORY / "fleet",
    "cli": REPOSITORY / "src" / "grpcdiag" / "cli",
    "files": REPOSITORY / "src" / "grpcdiag" / "files",
}
"""The folders of the Python half."""

MODULES_ARE_ROOMS = ("analyzer", "fleet", "reports")
"""Layers whose modules at the top are rooms; those of the others are one room."""

Arrows = Mapping[str, frozenset[str]]
"""What each room imports."""


def list_files() -> Iterator[tuple[str, Path]]:
    """Give each Python file with its layer; the core's folder holds none of the product."""
    for layer, folder in LAYERS.items():
        yield from ((layer, path) for path in sorted(folder.rglob("*.py")) if "core" not in path.parts)


@cache
def list_imports(layer: str, path: Path) -> tuple[str, ...]:
    """Give the absolute names of this package that a file imports."""
    return tuple(_walk_imports(layer, path))


def _walk_imports(layer: str, path: Path) -> Iterator[str]:
    inside = path.relative_to(LAYERS[layer]).parent.parts
    package = ("grpcdiag", layer, *inside)
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "grpcdiag")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.split(".")[0] == "grpcdiag":
                yield from (f"{module}.{alias.name}" for alias in node.names)


def find_room(name: str) -> str:
    """Find the room of a module or of a name in it: a folder, or in some layers a module at the top of the folder."""
    layer, *inside = name.split(".")[1:]
    if "_core" in (layer, *inside[:1]):
        return "_core"
    if not inside or layer not in LAYERS:
        return layer
    place = LAYERS[layer] / inside[0]
    is_room = place.is_dir() or (layer in MODULES_ARE_ROOMS and place.with_suffix(".py").is_file())
    return f"{layer}.{inside[0]}" if is_room else layer


def read_arrows() -> Arrows:
    """Read which rooms each room imports."""
    found: dict[str, set[str]] = {}
    for layer, path in list_files():
        inside = path.relative_to(LAYERS[layer]).with_suffix("").parts
        own = find_room(".".join(["grpcdiag", layer, *inside]))
        if imports := {find_room(name) for name in list_imports(layer, path)} - {own}:
            found.setdefault(own, set()).update(imports)
    return {room: frozenset(imports) for room, imports in found.items()}


# The picture


WHOLE = ("capture", "cli", "files", "fleet", "reports")
"""Layers that the picture shows as one room."""
NOT_DRAWN = ("ahead", "fixtures", "interruption", "streams", "version")


def draw_rooms() -> str:
    """Draw the rooms as a Mermaid chart. An arrow that follows from others is left out."""
    names = {"_core": "analyzer/core (Rust)", "cli": "src/grpcdiag/cli", "files": "src/grpcdiag/files"}
    merged: dict[str, set[str]] = {}
    for room, imports in read_arrows().items():
        own = _merge(room)
        merged.setdefault(own, set()).update({_merge(one) for one in imports} - {own, *NOT_DRAWN})
    rooms = sorted({*merged, *(one for imports in merged.values() for one in imports)})
    lines = ["flowchart BT"]
    lines += [f'    {_id(room)}["{names.get(room, room.replace(".", "/"))}"]' for room in rooms]
    for room in rooms:
        direct = merged.get(room, set())
        implied = {far for near in direct for far in _reach(merged, near)}
        lines += [f"    {_id(room)} --> {_id(one)}" for one in sorted(direct - implied)]
    return "\n".join(lines)


def _merge(room: str) -> str:
    return next((layer for layer in WHOLE if room.split(".")[0] == layer), room)


def _id(room: str) -> str:
    return room.replace(".", "_").strip("_")


def _reach(arrows: Mapping[str, set[str]], room: str) -> set[str]:
    """Find all rooms that a room imports, directly or through others."""
    found: set[str] = set()
    waiting = list(arrows.get(room, ()))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += arrows.get(one, ())
    return found
