"""The issue forms of gRPC's projects: their headings, word for word, and the parts below each heading.

Read on 2026-11-21 from copies of the repositories at the commits named; the headings of grpc/grpc-go, grpc/grpc and
grpc/grpc-java were compared with issues filed with them: grpc/grpc-go#8795 (2025-12), grpc/grpc#41032 (2025-11),
grpc/grpc-java#11284 (2024-06).
"""

from msgspec import Struct

from ...analyzer.model.analysis import Analysis

WORDS = "="
"""First character of words between parts."""


class Section(Struct, frozen=True):
    """A heading of a form and the parts below it."""

    heading: str
    """Markdown, as in the form."""
    parts: tuple[str, ...]
    """Names of functions of `sections.PARTS`, or words after `WORDS`."""


class Form(Struct, frozen=True):
    """An issue form."""

    name: str
    """Name for `--for`."""
    source: str
    """Source of the form; empty for grpcdiag's own form."""
    language: str
    """Name of the library in `grpc_version`."""
    implementations: tuple[str, ...]
    """Prefixes of the project's implementations, as read from `user-agent` or inferred from frames."""
    knobs: tuple[str, ...]
    """Prefixes of the implementations whose settings belong to the project, as remedies name them."""
    sections: tuple[Section, ...]


_EVIDENCE = ("summary", "budget", "findings", "example", "ruled_out", "methods", "connections", "files")
_DONE = ("did", "work", "command", "recorded")

GRPC_GO = Form(
    name="grpc-go",
    source="grpc/grpc-go .github/ISSUE_TEMPLATE/bug.md at eeeeaed618664d54b6fc2dd5fe83722aebeb6889",
    language="grpc-go",
    implementations=("grpc-go",),
    knobs=("grpc-go",),
    sections=(
        Section("### What version of gRPC are you using?", ("grpc_version",)),
        Section("### What version of Go are you using (`go version`)?", ("go_version",)),
        Section("### What operating system (Linux, Windows, …) and version?", ("system",)),
        Section("### What did you do?", _DONE),
        Section("### What did you expect to see?", ("expected",)),
        Section("### What did you see instead?", _EVIDENCE),
    ),
)

GRPC = Form(
    name="grpc",
    source="grpc/grpc .github/ISSUE_TEMPLATE/bug_report.md at 0613a9a99f4f57ebbe7c0af18f9472f11ff56be9",
    language="gRPC (C++, Python, Ruby or PHP)",
    implementations=("grpc-c-core", "grpc-c", "grpc-python", "grpc-ruby", "grpc-php", "grpc-objc", "grpc-csharp"),
    knobs=("C-core", "grpc-python"),
    sections=(
        Section("### What version of gRPC and what language are you using?", ("grpc_version", "language")),
        Section("### What operating system (Linux, Windows,...) and version?", ("system",)),
        Section(
            "### What runtime / compiler are you using (e.g. python version or version of gcc)", ("compiler_version",)
        ),
        Section("### What did you do?", _DONE),
        Section("### What did you expect to see?", ("expected",)),
        Section("### What did you see instead?", _EVIDENCE[:-1]),
        Section("### Anything else we should know about your project / environment?", ("else_", "files")),
    ),
)

GRPC_JAVA = Form(
    name="grpc-java",
    source="grpc/grpc-java .github/ISSUE_TEMPLATE/bug_report.md at 5d9bab1bd63af5dc7d7ea3bff615d3c5c665b139",
    language="grpc-java",
    implementations=("grpc-java",),
    knobs=("grpc-java",),
    sections=(
        Section("### What version of gRPC-Java are you using?", ("grpc_version",)),
        Section("### What is your environment?", ("system", "jdk_version")),
        Section("### What did you expect to see?", ("expected",)),
        Section("### What did you see instead?", _EVIDENCE),
        Section("### Steps to reproduce the bug", _DONE),
    ),
)

GRPC_NODE = Form(
    name="grpc-node",
    source="grpc/grpc-node .github/ISSUE_TEMPLATE/bug_report.md at 4004e2428c8ff305d29c4b53159e5f80ad1375f0",
    language="@grpc/grpc-js",
    implementations=("grpc-node",),
    knobs=("grpc-js", "grpc-node"),
    sections=(
        Section("**Problem description**", ("summary", "budget", "=Expected instead:", "expected")),
        Section("**Reproduction steps**", _DONE),
        Section("**Environment**", ("node_environment",)),
        Section("**Additional context**", _EVIDENCE[2:]),
    ),
)

TONIC = Form(
    name="tonic",
    source="hyperium/tonic .github/ISSUE_TEMPLATE/bug_report.md at 02487bec3ab82064f83a67e7f009d65689c8e5c3",
    language="tonic",
    implementations=("tonic",),
    knobs=("tonic",),
    sections=(
        Section("## Bug Report", ()),
        Section("### Version", ("grpc_version", "crates")),
        Section("### Platform", ("system",)),
        Section("### Crates", ("affected_crates",)),
        Section(
            "### Description",
            (
                "summary",
                "=I tried this:",
                *_DONE,
                "=I expected to see this happen:",
                "expected",
                "=Instead, this happened:",
                *_EVIDENCE[1:],
            ),
        ),
    ),
)

GENERIC = Form(
    name="generic",
    source="",
    language="gRPC library",
    implementations=(),
    knobs=(),
    sections=(
        Section("### Summary", ("summary", "budget")),
        Section("### Versions", ("grpc_version", "runtime_version", "system")),
        Section("### What was done", _DONE),
        Section("### What was expected", ("expected",)),
        Section("### What happened instead", _EVIDENCE[2:]),
    ),
)

FORMS: tuple[Form, ...] = (GRPC_GO, GRPC, GRPC_JAVA, GRPC_NODE, TONIC, GENERIC)
"""All forms."""


def named(name: str) -> Form:
    """Find the form of that name. Raises StopIteration."""
    return next(form for form in FORMS if form.name == name)


def implementations(analysis: Analysis) -> set[str]:
    """List the known implementations at the ends of the connections."""
    c = analysis.connections
    return {name for x in c for name in (x.client_implementation, x.server_implementation) if name}


def of_implementation(*implementations: str | None) -> Form:
    """Find the form of the first implementation that has one, or the generic form."""
    for implementation in filter(None, implementations):
        for form in FORMS:
            if implementation.startswith(form.implementations) and form.implementations:
                return form
    return GENERIC
