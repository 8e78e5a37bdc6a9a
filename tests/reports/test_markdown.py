"""The Markdown report: exact text of captures, nothing a capture could slip into a tracker, and its length."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from injected import injected
from markup import HOSTILE, LINKED, kinds, parsed, plain
from msgspec.structs import replace
from support import ALL_CAPTURES, RECORDED, SNAPSHOTS, recorded, run_here

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.two_captures import analyze_files
from grpcdiag.reports import markdown


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return analyze([recorded("rtt205-go-16000.pcap")])


def check(name: str, text: str, update: bool) -> None:
    path = SNAPSHOTS / name
    if update:
        path.write_text(text)
    assert text == path.read_text(), "to accept the new text: pytest --update-snapshots"


@pytest.mark.parametrize("name", ["rtt205-go-16000", "rpc-errors", "impl-java"])
def test_snapshot(name: str, update_snapshots: bool) -> None:
    check(f"{name}.md", markdown.render(analyze([recorded(f"{name}.pcap")]), version="0"), update_snapshots)


def test_snapshot_of_both_ends(update_snapshots: bool) -> None:
    files = [recorded("rtt205-go-16000.pcap"), recorded("rtt205-go-16000.server.pcap")]
    text = markdown.render(analyze_files(files), version="0")
    assert str(Path(files[0]).parent) not in text
    check("rtt205-go-16000-both-ends.md", text, update_snapshots)


@pytest.mark.parametrize("text", [*HOSTILE, "A" * 1_000_000, "@a " * 400_000])
def test_hostile_text_is_text(text: str, analysis: Analysis) -> None:
    page = markdown.render(injected(analysis, text), version="0")
    usual = markdown.render(injected(analysis, "word"), version="0")
    assert len(page.encode()) < 60_000
    harmless(page, usual)


def harmless(page: str, usual: str) -> None:
    """The same nodes as with a harmless word, but for code, and no links, marks or raw markup of strangers."""
    assert kinds(page) <= kinds(usual) | {"code_inline"}
    for kind in ("table_open", "tr_open", "td_open", "heading_open", "html_block", "html_inline", "fence"):
        here, there = ([t.content for t in parsed(p) if t.type == kind] for p in (page, usual))
        assert len(here) == len(there), kind
        if kind.startswith("html"):
            assert here == there
    assert "link_open" not in kinds(page)
    assert "image" not in kinds(page)
    for text in plain(page):
        assert not LINKED.search(re.sub(r"RPC/s|&|[A-Z]_[A-Z]|:\d\d:", "", text).replace("_", "")), text
    assert all(c.isprintable() or c == "\n" for c in page)


WIDE = os.environ.get("GRPCDIAG_MARKDOWN_ALL") == "1"
"""Whether every capture there is is rendered, in every form, and not the committed recordings alone."""
SOME = ALL_CAPTURES if WIDE else [p for p in ALL_CAPTURES if Path(p.values[0][0]).parent == RECORDED]


@pytest.mark.parametrize("files", SOME)
def test_every_capture_renders(files: tuple[str, ...]) -> None:
    try:
        found = analyze(list(files))
    except NoGrpcError:
        return
    page = markdown.render(found, version="0")
    assert len(page.encode()) < 60_000
    assert f"{found.totals.rpcs:,} RPC" in page
    assert {token.tag for token in parsed(page) if token.type.startswith("html")} <= {""}
    assert "link_open" not in kinds(page)
    for text in plain(page):
        assert not re.search(r"@\w|#\d|https?:|\w@\w", text)


def test_many_findings_are_cut_and_named(analysis: Analysis) -> None:
    model = analysis.findings[0]
    many = [replace(model, id=f"f-{n}", explanation="word " * 600, lost_ns=n, share=0.0) for n in range(30)]
    page = markdown.render(replace(analysis, findings=tuple(many)), version="0")
    assert len(page.encode()) < 60_000
    whole = markdown.render(replace(analysis, findings=tuple(many[:12])), version="0")
    assert "Left out for length" not in whole


def test_the_command(tmp_path: Path) -> None:
    outcome = run_here(
        "analyze", recorded("rtt205-go-16000.pcap"), "--format", "markdown", "-o", str(tmp_path / "r.md")
    )
    assert outcome.code == 0, outcome.err
    text = (tmp_path / "r.md").read_text()
    assert text.startswith("## `rtt205-go-16000.pcap`\n")
    assert "| `congestion_window` | 1.03 s | 50.0% |" in text
