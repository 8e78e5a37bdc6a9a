"""The pages: links that lead somewhere, commands that exist, examples that are real, a man page that renders."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest
from markdown_it import MarkdownIt
from support import RECORDED, REPOSITORY, require_tool

from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.detector import Detector
from grpcdiag.analyzer.model.finding import SEVERITIES
from grpcdiag.analyzer.sidecar.names import is_sidecar_file

DOCS = REPOSITORY / "docs"
sys.path.insert(0, str(DOCS))

from generating import command_line, consoles  # noqa: E402
from generating.examples import analyze_recorded  # noqa: E402

PAGES = sorted([*REPOSITORY.glob("*.md"), *DOCS.rglob("*.md"), *RECORDED.rglob("*.md")])
SCHEMAS = sorted((REPOSITORY / "reports" / "schema").glob("*.json"))
MANUAL = DOCS / "man" / "data" / "share" / "man" / "man1" / "grpcdiag.1"
every_page = pytest.mark.parametrize(
    "page", [pytest.param(path, id=str(path.relative_to(REPOSITORY))) for path in PAGES]
)


@cache
def tokens(page: Path) -> tuple[Any, ...]:
    """What a page consists of, with the tokens inside paragraphs."""
    markdown = MarkdownIt("commonmark", {"linkify": False}).enable("table")
    flat = []
    for token in markdown.parse(page.read_text()):
        flat += [token, *(token.children or ())]
    return tuple(flat)


def links(page: Path) -> Iterator[str]:
    for token in tokens(page):
        target = token.attrs.get("href") or token.attrs.get("src")
        if target:
            yield str(target)
        if token.type == "text":
            yield from (found.rstrip(".,;:") for found in re.findall(r"https?://[^\s<>|\")\]]+", token.content))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Names of a page's headings as GitHub makes them."""
    found: list[str] = []
    for before, token in zip(tokens(page), tokens(page)[1:], strict=False):
        if before.type == "heading_open":
            text = "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return frozenset(found)


@every_page
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    for target in links(page):
        parts = urlsplit(target)
        if parts.scheme:
            continue
        file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        assert file.is_relative_to(REPOSITORY), target
        assert file.exists(), target
        if parts.fragment:
            assert parts.fragment in anchors(file), f"{target}: {sorted(anchors(file))}"


HOSTS = """ably.com blog.ydb.tech devguide.python.org doc.rust-lang.org docs.kernel.org duckdb.org echarts.apache.org
    github.com grpc.io prometheus.io keepachangelog.com opentelemetry.io
    perfetto.dev pypi.org semver.org ui.perfetto.dev wiki.wireshark.org www.roguedb.com www.tcpdump.org
    man7.org www.bufferbloat.net www.wireshark.org vale.sh"""
"""Where pages lead to. Nobody follows links here: follow a new one once, then write its host down."""


@every_page
def test_links_to_elsewhere_are_whole(page: Path) -> None:
    for target in links(page):
        parts = urlsplit(target)
        if not parts.scheme:
            continue
        assert parts.scheme == "https", target
        assert parts.netloc in HOSTS.split(), target
        assert re.fullmatch(r"[A-Za-z0-9_./~%#?=&:+-]*", parts.path + parts.query + parts.fragment), target


@every_page
def test_pages_say_nothing_of_where_they_were_written(page: Path) -> None:
    assert not re.search(r"(?<!\w)/(home|root|work|workspace)/\w", page.read_text())


def test_the_links_of_the_walk_are_links() -> None:
    readme = set(links(REPOSITORY / "README.md"))
    assert {"docs/findings/README.md", "LICENSE"} <= readme
    assert "json" in anchors(DOCS / "verify.md")
    assert any(target.startswith("https://blog.ydb.tech") for page in PAGES for target in links(page))


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    grouped = runpy.run_path(str(DOCS / "conf.py"))["grouped"]()
    shown = [page for pages in grouped.values() for page in pages]
    wanted = {path.relative_to(REPOSITORY).with_suffix("").as_posix() for path in PAGES} - {"README"}
    assert set(shown) == wanted
    assert len(shown) == len(set(shown))
    assert grouped["Tutorials"][0] == "docs/tutorials/README"


# Commands

FENCE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def typed(page: Path) -> Iterator[str]:
    """Commands of grpcdiag in a page, with sudo and what follows a pipe left out."""
    for block in FENCE.finditer(page.read_text()):
        for line in block[1].splitlines():
            command = line.removeprefix("$ ").split("#")[0].split(" | ")[0].removeprefix("sudo ").strip()
            if line.startswith("$ ") and command.startswith("grpcdiag"):
                yield command


@cache
def known_options() -> dict[str, set[str]]:
    """The options of each command."""
    return {c.name: {name for p in c.parameters for name in p.names} for c in command_line.commands()}


@every_page
def test_commands_in_pages_exist_with_their_options(page: Path) -> None:
    known = known_options()
    for command in typed(page):
        name, *arguments = [*shlex.split(command)[1:], ""]
        if name.startswith("-"):
            assert name in ("--version", "--help", "--install-completion", "--show-completion"), command
            continue
        if any(other.startswith(f"{name} ") for other in known):  # a command of a group
            name, *arguments = [f"{name} {arguments[0]}", *arguments[1:]]
        assert name in known, command
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        options = {word.split("=")[0] for word in own if re.match(r"--?[a-z]", word)}
        assert options <= known[name] | {"--help"}, command


def test_a_changed_output_would_be_seen() -> None:
    page = "<!-- run: Exit -->\n```console\n$ grpcdiag --help\nold\n$ echo $?\n7\n```\n"
    fresh = consoles.refreshed(page)
    assert "old" not in fresh
    assert "...\n  Exit codes: 0: done" in fresh
    assert fresh.endswith("$ echo $?\n0\n```\n")
    with pytest.raises(ValueError, match="nothing printed begins with 'Nonsense'"):
        consoles.refreshed(page.replace("run: Exit", "run: Nonsense"))


@pytest.mark.parametrize("page", sorted((DOCS / "tutorials").glob("[a-z]*.md")), ids=lambda path: path.stem)
def test_tutorials_are_run_and_name_their_source(page: Path) -> None:
    commands = consoles.commands(page.read_text())
    assert sum("grpcdiag analyze" in command for command in commands) >= 1
    assert sum("grpcdiag compare" in command for command in commands) >= 1
    assert any(urlsplit(target).scheme == "https" for target in links(page))
    assert "(tutorials/" not in page.name


def test_there_is_a_tutorial_for_each_field_case() -> None:
    listed = set(links(DOCS / "tutorials" / "README.md"))
    pages = {path.name for path in (DOCS / "tutorials").glob("[a-z]*.md")}
    assert len(pages) == 4
    assert pages <= listed


# Examples


@cache
def real_severities() -> dict[str, int]:
    """Each finding's gravest severity in the recorded captures of the repository."""
    gravest: dict[str, int] = {}
    for path in sorted(path for path in RECORDED.rglob("*.pcap*") if not is_sidecar_file(path.name)):
        try:
            findings = analyze_recorded(str(path)).findings
        except NoGrpcError:  # the one whose key log is needed
            continue
        for finding in findings:
            rank = SEVERITIES.index(finding.severity)
            gravest[finding.id] = max(rank, gravest.get(finding.id, -1))
    return gravest


def test_examples_are_real_where_a_recorded_capture_shows_it() -> None:
    """In one test, for it analyzes all recorded captures."""
    for detector in DETECTORS:
        check_example(detector)


def check_example(detector: Detector) -> None:
    finding_id, example = detector.id, detector.about.example
    capture = REPOSITORY / "fixtures" / example
    (finding,) = [f for f in analyze_recorded(str(capture)).findings if f.id == finding_id]
    page = (DOCS / "findings" / f"{finding_id}.md").read_text()
    assert f"`fixtures/{example}`" in page
    is_real = finding_id in real_severities()
    assert ("\nSynthetic: " in page) is not is_real, finding_id
    if is_real:
        assert capture.is_relative_to(RECORDED)
        assert SEVERITIES.index(finding.severity) == real_severities()[finding_id], finding_id


# Man page and schemas


def test_the_man_page_renders_without_warnings() -> None:
    man = require_tool("man")
    env = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([man, "--warnings", "-l", str(MANUAL)], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "slow-start-after-idle" in done.stdout
    for command_ in command_line.commands():
        assert re.search(rf"^   {command_.name}$", done.stdout, re.MULTILINE), command_.name
    assert "\\" not in done.stdout


def test_the_man_page_has_no_lint() -> None:
    done = subprocess.run([require_tool("mandoc"), "-Tlint", str(MANUAL)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda path: path.stem)
def test_schemas_are_schemas_with_a_name(schema: Path) -> None:
    document = json.loads(schema.read_text())
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["$id"] == f"urn:grpcdiag:schema:{schema.stem}"
    assert document["title"] == f"grpcdiag.{schema.stem.replace('-', '/')}"
