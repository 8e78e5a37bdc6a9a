"""Pages that say what the sources say: findings with examples, tables, limits, commands; and what commands print.

python docs/generate.py            write them
python docs/generate.py --check    report which would come out differently, and exit with 1
python docs/generate.py --finding ID    write the page of one finding, and the index
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import operator
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

from generating import command_line, consoles, examples, json_schema, rooms, software

from grpcdiag.analyzer import _core, tables
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.detector import HEADINGS, Detector

DOCS = Path(__file__).resolve().parent
SHARE = DOCS / "man" / "data" / "share"
"""What lies in docs/man/data is installed as it lies there."""
SCHEMA = DOCS.parent / "reports" / "schema" / "analysis-1.json"
CORE = DOCS.parent / "analyzer" / "core" / "src"
LIMITS = CORE / "limits.rs"


def generated(source: str) -> str:
    """The line above every page."""
    return f"<!-- Written by docs/generate.py from {source}: change that, then run `make docs`. -->\n\n"


# Findings


def finding_page(detector: Detector) -> str:
    """A detector's docstring as Markdown, with its limits. Raises ValueError when a heading is missing or empty."""
    name = detector.id.replace("-", "_")
    sentence, sections = finding_parts(detector)
    lines = [generated(f"analyzer/detectors/{name}.py") + f"# {detector.id}", "", sentence]
    for heading, text in sections:
        lines += ["", f"## {heading}", "", text]
        if heading == HEADINGS[0]:
            lines += ["", "## Example", "", *examples.example(detector)]
    lines += ["", "## Limits", "", *limits_table(detector)]
    return "\n".join(lines) + "\n"


def finding_parts(detector: Detector) -> tuple[str, list[tuple[str, str]]]:
    """The first sentence of a detector's docstring, and its sections by heading."""
    parts = re.split(r"^(.+)\n-{3,}$", inspect.cleandoc(detector.page), flags=re.MULTILINE)
    sections = [(heading.strip(), text.strip()) for heading, text in zip(parts[1::2], parts[2::2], strict=True)]
    if tuple(heading for heading, _ in sections) != HEADINGS or not all(text for _, text in sections):
        raise ValueError(f"{detector.id}: its docstring must have the headings {', '.join(HEADINGS)}, none empty")
    return parts[0].strip(), sections


def limits_table(detector: Detector) -> Iterator[str]:
    """The thresholds of a detector."""
    yield from ("| limit | value | meaning |", "| --- | --- | --- |")
    for name, text in attribute_docs(type(detector.limits)).items():
        yield f"| `{name}` | {getattr(detector.limits, name)} | {text} |"


def attribute_docs(owner: type) -> dict[str, str]:
    """The string below each attribute of a class, and of the class it extends."""
    (definition,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(definition, ast.ClassDef)
    inherited = attribute_docs(owner.__bases__[0]) if "grpcdiag" in owner.__bases__[0].__module__ else {}
    return inherited | dict(_documented(definition.body))


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, below in itertools.pairwise(body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())


def findings_index() -> str:
    """All findings with their first sentences."""
    lines = [
        generated("analyzer/detectors/") + "# Findings",
        "",
        "What grpcdiag looks for. `grpcdiag explain ID` prints the same explanations.",
        "",
        "| id | what it says |",
        "| --- | --- |",
    ]
    lines += [f"| [{d.id}]({d.id}.md) | {finding_parts(d)[0]} |" for d in sorted(DETECTORS, key=lambda d: d.id)]
    return "\n".join(lines) + "\n"


# Tables

TYPES = {"Ints": "int64", "Counts": "uint32", "Sizes": "uint64", "Shorts": "uint16", "Codes": "uint8"}
CORE_NAMES = {
    "CAUSES": "Causes of waits and columns of budgets.",
    "VANTAGES": "Names of `Connections.vantage`.",
    "ROLES_FROM": "Names of `Connections.roles_from`.",
    "IMPLEMENTATIONS": "Names of `Connections.client_hint` and `server_hint`; empty when not known.",
    "PACKET_NOTES": "Names of `Packets.note`; empty when there is nothing to say.",
}
"""Names that the core hands out, and what they name."""
TABLES = (
    tables.Connections,
    tables.Rpcs,
    tables.Messages,
    tables.Frames,
    tables.Packets,
    tables.Waits,
    tables.Problems,
)


def tables_page() -> str:
    """All tables with their columns, and the constants that columns refer to."""
    parts = [generated("analyzer/tables/") + "# Tables", inspect.cleandoc(tables.__doc__ or "")]
    parts.append(
        "These are the tables that detectors read. The commands `connections`, `rpcs`, `messages`, `frames`,\n"
        "`packets` and `waits` write them with names for codes and null for what is not known;\n"
        "`reports/tables/rows.py` says which columns."
    )
    for table in TABLES:
        parts.append(f"## {table.__name__}\n\n{inspect.cleandoc(table.__doc__ or '')}")
        parts.append("\n".join(columns(table)))
    parts.append("## Constants\n\n" + "\n".join(constants()))
    return "\n\n".join(parts) + "\n"


def columns(table: type) -> Iterator[str]:
    """The columns of one table as rows of Markdown. Raises ValueError when one has no sentence."""
    kinds = {getattr(tables, name): text for name, text in TYPES.items()}
    yield from ("| column | type | meaning |", "| --- | --- | --- |")
    for name, kind in get_type_hints(table, include_extras=True).items():
        if get_origin(kind) is not Annotated:
            raise ValueError(f"{table.__name__}.{name} has no sentence")
        column, doc = get_args(kind)
        yield f"| `{name}` | {kinds[column]} | {doc} |"


def constants() -> Iterator[str]:
    """Constants that columns refer to."""
    yield from ("| name | value | meaning |", "| --- | --- | --- |")
    for name, text in _documented(ast.parse(inspect.getsource(tables.columns)).body):
        if name.isupper():
            yield f"| `{name}` | {shown(getattr(tables, name))} | {text} |"
    for name, text in CORE_NAMES.items():
        yield f"| `{name}` | {shown(tuple(getattr(_core, name)))} | {text} |"


def shown(value: object) -> str:
    """A value as the tables show it."""
    return ", ".join(f"{n} {item}" for n, item in enumerate(value)) if isinstance(value, tuple) else str(value)


# Limits

CONSTANT = re.compile(r"pub const (\w+): \w+ = (.+);")
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Mult: operator.mul,
    ast.LShift: operator.lshift,
}


def limits_page() -> str:
    """Every bound of the core. Raises ValueError when one has no sentence."""
    source = LIMITS.read_text(encoding="utf-8")
    head = "\n".join(line.removeprefix("//!").strip() for line in source.splitlines() if line.startswith("//!"))
    lines = [generated("analyzer/core/src/limits.rs") + "# Limits", "", head]
    values: dict[str, int] = {}
    said: list[str] = []
    for line in source.splitlines():
        if line.startswith("// ---"):
            lines += ["", f"## {line.strip('/- ')}", "", "| limit | value | meaning |", "| --- | --- | --- |"]
        elif line.startswith("///"):
            said.append(line.removeprefix("///").strip())
        elif match := CONSTANT.fullmatch(line):
            name, value = match[1], evaluated(match[2], values)
            if not said:
                raise ValueError(f"{name} has no sentence")
            values[name] = value
            lines.append(f"| `{name}` | {value:,} | {' '.join(said)} |")
            said = []
        elif line.startswith("pub const"):
            raise ValueError(f"not understood: {line}")
    return "\n".join(lines) + "\n"


def evaluated(expression: str, known: dict[str, int]) -> int:
    """The value of a constant's expression: integers, constants before it, `+`, `*` and `<<`."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return known[name]
            case ast.BinOp(left=left, op=op, right=right):
                return OPERATORS[type(op)](value(left), value(right))
        raise ValueError(f"not understood: {expression}")

    return value(ast.parse(expression, mode="eval").body)


# Writing


def architecture_page() -> str:
    """The page by hand with the picture of the rooms as they are."""
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    begin, end = "<!-- rooms: written by docs/generate.py -->", "<!-- end of rooms -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n```mermaid\n{rooms.draw_rooms()}\n```\n\n{end}{rest.partition(end)[2]}"


def pages() -> dict[Path, str]:
    """Every generated page by its path."""
    findings = {DOCS / "findings" / f"{d.id}.md": finding_page(d) for d in DETECTORS}
    return {
        **{path: consoles.refreshed(path.read_text(encoding="utf-8")) for path in consoles.pages()},
        **findings,
        DOCS / "findings" / "README.md": findings_index(),
        DOCS / "tables.md": tables_page(),
        DOCS / "limits.md": limits_page(),
        DOCS / "software.md": generated("analyzer/software/known/") + software.write_page(),
        CORE / "grpc" / "texts_of_software.rs": software.write_texts(),
        DOCS / "commands.md": generated("src/grpcdiag/cli/") + command_line.page(),
        SHARE / "man" / "man1" / "grpcdiag.1": command_line.manual(),
        **{SHARE / path: text for path, text in command_line.completions().items()},
        DOCS / "architecture.md": architecture_page(),
        SCHEMA: json_schema.write_schema(attribute_docs),
    }


def drift(wanted: dict[Path, str]) -> Iterator[str]:
    """What is not as `write` would leave it."""
    for path, text in wanted.items():
        if not path.exists():
            yield f"{path.relative_to(DOCS.parent)}: missing"
        elif path.read_text(encoding="utf-8") != text:
            yield f"{path.relative_to(DOCS.parent)}: differs"
    for path in sorted((DOCS / "findings").glob("*.md")):
        if path not in wanted:
            yield f"{path.relative_to(DOCS.parent)}: no detector has this id"


def write(wanted: dict[Path, str]) -> None:
    """Write all pages, and remove those of findings that are no more."""
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in set((DOCS / "findings").glob("*.md")) - wanted.keys():
        path.unlink()


def main() -> int:
    """Command line; 1 when `--check` found differences."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("--finding", metavar="ID", help="write the page of this finding, and the index, alone")
    given = parser.parse_args()
    if given.finding:
        detector = next(one for one in DETECTORS if one.id == given.finding)
        (DOCS / "findings" / f"{detector.id}.md").write_text(finding_page(detector), encoding="utf-8")
        (DOCS / "findings" / "README.md").write_text(findings_index(), encoding="utf-8")
        return 0
    wanted = pages()
    if not given.check:
        write(wanted)
        print(f"{len(wanted)} pages written")
        return 0
    found = list(drift(wanted))
    print("\n".join([*found, "run `make docs`"]) if found else f"{len(wanted)} generated pages are up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
