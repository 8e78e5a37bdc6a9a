"""The page as text: policy, hostile text, secrets, size, and what can be read without its script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from injected import process
from msgspec.structs import replace
from support import REPOSITORY, SNAPSHOTS, grpcdiag, recorded, recording, run_here

from grpcdiag.analyzer.analysis import add_processes, analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.tables.grouping import take_rows
from grpcdiag.analyzer.tables.processes import PARTS
from grpcdiag.analyzer.two_captures import analyze_files
from grpcdiag.analyzer.views.page_data import Bounds, PageData, collect_page_data, halve_page_data
from grpcdiag.analyzer.views.thread_steps import collect_steps
from grpcdiag.cli.support.sidecar import find_sidecar
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.reports import html, markdown, terminal
from grpcdiag.reports.html import columns, page, said

VOID = {"meta", "link", "input", "br", "hr"}
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that something obeys, or that do not show."""
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)' x=\"",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b[31mred\x1b]0;title\x07\x9b2J\r\n\x08",
    "\u202egpj.exe\u2066\u200b\u061c",
    "broken \udcff\udc80 text",
    "<!--<script>]]>&lt;&#0;",
    "x" * 1_000_000,
)


class Read(HTMLParser):
    """Elements in their order, with what a reader sees of them; complains about elements that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style" and data.strip():
            self.words.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return "\n".join(self.words) + "\n"


def made(*paths: str) -> tuple[Analysis, PageData]:
    analysis = analyze(list(paths))
    return replace(analysis, files=tuple(Path(path).name for path in paths)), collect_page_data(list(paths), analysis)


@pytest.fixture(scope="module")
def rtt() -> tuple[Analysis, PageData]:
    return made(recorded("rtt205-go-16000.pcap"))


@pytest.mark.parametrize("name", ["rtt205-go-16000", "rpc-errors", "impl-java"])
def test_what_is_read_without_the_script(name: str, update_snapshots: bool) -> None:
    text, path = Read(html.render(*made(recorded(f"{name}.pcap")))).text, SNAPSHOTS / f"{name}.html.txt"
    if update_snapshots:
        path.write_text(text)
    assert text == path.read_text(), "to accept the new text: pytest --update-snapshots"


def test_the_page_says_what_the_analysis_says(rtt: tuple[Analysis, PageData]) -> None:
    analysis, _ = rtt
    text = " ".join(Read(html.render(*rtt)).text.split())
    assert analysis.verdict.text in text
    for finding in analysis.findings:
        assert finding.title in text and finding.explanation in text
        for evidence in finding.evidence:
            assert f"#{evidence.packet}" in text and evidence.what in text
        for remedy in finding.remedies:
            assert remedy.knob in text and remedy.note in text
        assert all(reference in text for reference in finding.references)
    assert "frame.number in {45, 54, 55, 56, 69, 78, 79, 80, 90, 99, 100, 101}" in text
    assert "ip.addr == 10.77.0.1 && tcp.port == 55078 && ip.addr == 10.77.0.2 && tcp.port == 50051" in text


def test_nothing_but_the_page_s_own_script_may_run(rtt: tuple[Analysis, PageData]) -> None:
    text = html.render(*rtt)
    read = Read(text)
    policy = next(a["content"] for tag, a in read.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy and "*" not in policy
    allowed = set(re.findall(r"'(sha256-[^']+)'", policy.split("script-src")[1]))
    running = [s for s, (_, a) in zip(read.scripts, _scripts(read), strict=True) if "type" not in a]
    library = zlib.decompress(base64.b64decode(_by_id(read, "library"))).decode()
    assert {_hash(script) for script in [*running, library]} == allowed
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    assert _hash(style) in policy
    assert not [a for _, a in read.elements if "src" in a or any(name.startswith("on") for name in a) or "style" in a]
    links = [a["href"] or "" for tag, a in read.elements if "href" in a]
    assert all(link.startswith(("#", "https://")) or link == "data:," for link in links)
    assert all(tag == "a" for tag, a in read.elements if (a.get("href") or "").startswith("https://"))


def _scripts(read: Read) -> list[tuple[str, dict[str, str | None]]]:
    return [(tag, a) for tag, a in read.elements if tag == "script"]


def _by_id(read: Read, name: str) -> str:
    return next(s for s, (_, a) in zip(read.scripts, _scripts(read), strict=True) if a.get("id") == name)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def test_the_library_is_the_released_file() -> None:
    """The digest of dist/echarts.min.js in echarts 6.1.0 of the npm registry."""
    content = (REPOSITORY / "reports" / "html" / "vendor" / page.LIBRARY).read_bytes()
    assert hashlib.sha256(content).hexdigest() == "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
    assert b"</script" not in content.lower()


def test_no_part_of_the_script_writes_markup() -> None:
    script = page.join_scripts((*page.SCRIPTS, *page.PLAIN_SCRIPTS))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|fetch\(|XMLHttp", script
    )
    assert "</script" not in script.lower() and "<!--" not in script


def _with(analysis: Analysis, nasty: str) -> Analysis:
    """The analysis with foreign text wherever text can come from a capture, its names or what lies beside it."""
    finding = analysis.findings[0]
    remedy = replace(finding.remedies[0], note=nasty, present=nasty)
    found = replace(
        finding,
        title=nasty,
        explanation=nasty,
        scope=replace(finding.scope, methods=(nasty,)),
        metrics={"name": nasty},
        evidence=tuple(replace(e, what=nasty) for e in finding.evidence),
        remedies=(remedy,),
        references=(f"https://example.org/{nasty}",),
    )
    connection = replace(
        analysis.connections[0], client=nasty, server=nasty, client_implementation=nasty, server_implementation=nasty
    )
    return replace(
        analysis,
        files=(nasty,),
        verdict=replace(analysis.verdict, text=nasty),
        quality=replace(analysis.quality, warnings=(nasty,)),
        findings=(found, *analysis.findings[1:]),
        connections=(connection,),
        methods=(replace(analysis.methods[0], method=nasty, statuses={nasty: 1}),),
    )


@pytest.mark.parametrize("statuses", [{"not_seen": 3}, {"OK": 2, "not_seen": 1}])
def test_readers_see_that_a_status_is_unknown(rtt: tuple[Analysis, PageData], statuses: dict[str, int]) -> None:
    method = replace(rtt[0].methods[0], statuses=statuses)
    analysis = replace(rtt[0], methods=(method,))
    assert said.statuses(method).count("status unknown") == 1
    for text in (terminal.render(analysis), markdown.render(analysis)):
        assert text.count("status unknown") == 1 and "not_seen" not in text


@pytest.mark.parametrize("nasty", HOSTILE, ids=range(len(HOSTILE)))
def test_foreign_text_is_text_and_short(rtt: tuple[Analysis, PageData], nasty: str) -> None:
    analysis, drawn = rtt
    named = replace(drawn, methods=tuple(replace(method, name=nasty) for method in drawn.methods))
    text = html.render(_with(analysis, nasty), named)
    text.encode()
    assert not OBEYED.search(text)
    assert len(text) < 900_000
    read, plain = Read(text), Read(html.render(analysis, drawn))
    assert [tag for tag, _ in read.elements if tag in ("script", "img", "style")] == [
        tag for tag, _ in plain.elements if tag in ("script", "img", "style")
    ]
    assert {name for _, a in read.elements for name in a} == {name for _, a in plain.elements for name in a}
    shown = said.clean(nasty)
    assert " ".join(shown.split()) in [" ".join(word.split()) for word in read.words]
    assert json.loads(_by_id(read, "facts"))["methods"] == [said.name(nasty)]


def test_a_capture_of_hostile_names(tmp_path: Path) -> None:
    nasty = "".join(HOSTILE[:6]).replace("\r\n", "").encode()
    conversation = opened()
    for _ in range(3):
        conversation.unary(
            b"/<script>alert(1)</script>\xff\xfe\x1b[2J".decode("latin-1") + "\u202egpj.exe",
            status=13,
            message="</script>",
            metadata=[(b"user-agent", nasty), (b"x", nasty)],
        )
    conversation.goaway("server", 11, 0, debug=nasty)
    path = tmp_path / "</title><script>alert(1)</script>.pcap".replace("/", "\u2215")
    path.write_bytes(write_pcap(Link().carry(conversation)))
    text = html.render(*made(str(path)))
    assert not OBEYED.search(text)
    assert len(_scripts(Read(text))) == 4
    assert "&lt;script&gt;alert(1)" in text


CANARIES = (b"CANARY-payload-1", b"CANARY-header-22", b"CANARY-token-333", b"CANARY-message-4")


def test_no_payload_and_no_header_value_is_in_the_page(tmp_path: Path) -> None:
    conversation = opened()
    for _ in range(5):
        conversation.unary(
            "/lab.v1.Lab/Echo",
            request=CANARIES[0] * 40,
            message=CANARIES[3].decode(),
            metadata=[(b"x-api-key", CANARIES[1]), (b"authorization", CANARIES[2])],
        )
    path = tmp_path / "secret.pcap"
    path.write_bytes(write_pcap(Link().carry(conversation)))
    assert all(canary in path.read_bytes() for canary in CANARIES[:1])
    text = html.render(*made(str(path)))
    blob = zlib.decompress(base64.b64decode(_by_id(Read(text), "columns")))
    for canary in CANARIES:
        for at in range(len(canary) - 7):
            assert canary[at : at + 8].decode() not in text
            assert canary[at : at + 8] not in blob


def decoded(layout: columns.Layout, text: str) -> dict[str, dict[str, list[int]]]:
    """What the page's script makes of the columns, in Python."""
    blob = iter(zlib.decompress(base64.b64decode(text)))

    def numbers(rows: int) -> Iterator[int]:
        for _ in range(rows):
            coded = shift = 0
            while True:
                byte = next(blob)
                coded |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            yield -(coded + 1) // 2 if coded & 1 else coded // 2

    tables: dict[str, dict[str, list[int]]] = {}
    for table in layout:
        tables[table["name"]] = {}
        for column in table["columns"]:
            values = np.array(list(numbers(table["rows"])), dtype=np.int64)
            values = np.cumsum(values) if column["rising"] else values
            tables[table["name"]][column["name"]] = (values * column["unit"]).tolist()
    assert next(blob, None) is None
    return tables


NUMBERS = st.integers(-columns.LARGEST, columns.LARGEST)


@given(st.lists(NUMBERS), st.lists(st.integers(-5, 5).map(lambda n: n * 1000)))
def test_columns_come_back(first: list[int], second: list[int]) -> None:
    half = [n // 4 for n in first]  # differences of differences stay within 64 bits
    tables = {
        "a": {"x": np.array(half, dtype=np.int64), "y": np.array(first, dtype=np.int64)},
        "b": {"z": np.array(second, dtype=np.int64)},
    }
    layout, text = columns.packed(tables, ("x", "z"))
    assert decoded(layout, text) == {"a": {"x": half, "y": first}, "b": {"z": second}}


def test_the_page_holds_the_scene(rtt: tuple[Analysis, PageData]) -> None:
    read = Read(html.render(*rtt))
    facts = json.loads(_by_id(read, "facts"))
    tables = decoded(facts["layout"], _by_id(read, "columns"))
    _, drawn = rtt
    assert tables["packets"]["time_ns"] == drawn.packets.time_ns.tolist()
    assert tables["packets"]["client_in_flight"] == drawn.packets.client_in_flight.tolist()
    assert tables["rpcs"]["duration_ns"] == drawn.rpcs.duration_ns.tolist()
    assert tables["waits"]["congestion_window_bytes"] == drawn.waits.congestion_window_bytes.tolist()


def test_numbers_that_javascript_cannot_hold_are_cut() -> None:
    layout, text = columns.packed({"a": {"x": np.array([2**62, -(2**63)])}}, ())
    assert decoded(layout, text)["a"]["x"] == [columns.LARGEST, -columns.LARGEST]


def test_a_page_that_would_be_too_large_has_less_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so; its figures stay those of the whole capture."""
    analysis, drawn = made(recorded("max-concurrent-streams.pcap"))
    whole = html.render(analysis, drawn)
    monkeypatch.setattr(html, "MOST_BYTES", len(whole) - 5_000)
    less = html.render(analysis, drawn)
    assert len(less) <= html.MOST_BYTES
    assert "Drawn: 500 of 1,000 RPCs" in less
    assert "Drawn:" not in whole
    assert "1 connection, 1,000 RPCs" in less


def test_a_part_of_a_large_capture_says_what_is_drawn() -> None:
    path = recorded("max-concurrent-streams.pcap")
    analysis = analyze([path])
    drawn = collect_page_data([path], analysis, bounds=Bounds(packets=200, rpcs=300, around=10))
    text, rpcs = html.render(analysis, drawn), len(drawn.rpcs.stream)
    assert 200 <= rpcs <= 300  # 100 are the longest, 200 the sample, and some are in both
    assert f"Drawn: {rpcs} of 1,000 RPCs (the slowest, the failed, and a uniform sample of the others)" in text
    assert re.search(r"\d+ of 964 packets \(around the evidence", text)


def test_a_slow_rpc_without_an_end_is_listed() -> None:
    _, drawn = made(recorded("wild/idle-drop.pcap.zst"))
    slowest, second = said.slowest(drawn)[:2]
    assert (slowest["duration"], slowest["status"]) == ("at least 7.54 s", "status unknown")
    assert (second["duration"], second["status"]) == ("32.8 ms", "OK")


def test_figures_of_a_finding_have_units_and_no_exponent() -> None:
    analysis, _ = made(recorded("wild/idle-drop.pcap.zst"))
    finding = replace(
        analysis.findings[0], metrics={"a_share": 0.2, "b": 12_345.6, "c": 0.5, "d_ns": 1_500, "e": 1_000}
    )
    assert list(said.metrics(finding)) == [
        ("a share", "20.0%"),
        ("b", "12,346"),
        ("c", "0.5"),
        ("d", "1.50 µs"),
        ("e", "1,000"),
    ]


def test_steps_of_threads_fill_the_intervals_in_which_their_side_had_to_act() -> None:
    path = recorded("processes/slow-pool.pcap.zst")
    sidecar, _ = find_sidecar([path])
    assert sidecar
    found = add_processes([path], decode([path]), sidecar, ())[0].processes
    assert found
    acts = take_rows(found.acts, found.acts.process > 0)
    longest = np.sort(acts.duration_ns)[::-1]
    some, every = (collect_steps(found, 0, most) for most in (100, len(longest)))
    for steps, most in ((some, 100), (every, len(longest))):
        assert (np.bincount(steps.interval, steps.duration_ns, minlength=most) == longest[:most]).all()
        assert (np.diff(steps.start_ns) >= 0).all()
    assert np.bincount(every.part, every.duration_ns, len(PARTS)).tolist() == acts.parts.sum(axis=0).tolist()
    assert set(every.packet) == set(acts.packet)
    analysis = analyze([path])
    page = collect_page_data([path], analysis, join=lambda tables: found, bounds=Bounds(acts=100))
    assert any(f"100 of {len(longest):,} intervals of recorded threads" in text for text in said.left_out(page))
    half = halve_page_data(page)
    assert half.acts == 50
    assert set(half.steps.interval) == set(range(50))


def test_both_ends() -> None:
    ends = [recording("rtt205-go-16000", side).files[0] for side in ("client", "server")]
    analysis = analyze_files(ends, described=lambda files: (None, ()))
    assert analysis.ends is not None
    text = Read(html.render(analysis, collect_page_data(analysis.ends.client.files, analysis))).text
    assert "Both ends" in text and "network_up" in text and "no drift visible" in text


@pytest.mark.parametrize(("name", "over_time"), [("rtt205-go-16000", 1), ("rpc-errors", 0), ("too-many-pings", 0)])
def test_latencies_are_drawn_once(name: str, over_time: int) -> None:
    """The verdict's picture of the second shows the latency of every call; the third has two calls."""
    text = html.render(*made(recorded(f"{name}.pcap")))
    assert text.count('data-picture="0"') == over_time


@pytest.mark.parametrize(("name", "severity"), [("hop-buffering-a", "warning"), ("haproxy-ok", "fine")])
def test_time_that_a_proxy_held_is_its_own(name: str, severity: str) -> None:
    analysis, drawn = made(recorded(f"wild/{name}.pcap.zst"))
    held = drawn.rpcs.shares[:, CAUSES.index("proxy")] > 900
    assert held.sum() == (12 if severity == "warning" else 0)
    assert f'class="verdict {severity}"' in html.render(analysis, drawn)


def test_threads_are_in_every_report(rtt: tuple[Analysis, PageData]) -> None:
    analysis, line = replace(rtt[0], processes=(process("load"),)), "client load (7): 2 intervals, 1.00 ms: "
    texts = (terminal.render(analysis), markdown.render(analysis), Read(html.render(analysis, rtt[1])).text)
    assert all(f"{line}running 75%, lock 25%" in text for text in texts)
    assert "hreads: what led to the sends" not in html.render(*rtt) + markdown.render(rtt[0])


@pytest.mark.parametrize(
    "name", ["tls13-go-secrets", "mid-connection-go", "ydb-stream-single-inflight8", "snaplen-128"]
)
def test_other_recordings_are_pages(name: str) -> None:
    text = html.render(*made(*recording(name).files))
    Read(text)
    assert len(text) < html.MOST_BYTES


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    outcome = run_here("analyze", recorded("rtt205-go-16000.pcap"), "--format", "html", "-o", str(path))
    assert (outcome.code, outcome.text, outcome.err) == (0, "", "")
    assert "tcp_slow_start_after_idle" in Read(path.read_text()).text
    again = run_here("analyze", recorded("rtt205-go-16000.pcap"), "--format", "html")
    assert again.text == path.read_text()


def test_standard_input_is_read_twice() -> None:
    content = Path(recorded("rtt205-go-16000.pcap")).read_bytes()
    outcome = grpcdiag("analyze", "-", "--format", "html", stdin=content)
    assert outcome.code == 0, outcome.err
    read = Read(outcome.text)
    assert "standard input" in read.words
    assert "grpcdiag-" not in read.text
    assert json.loads(_by_id(read, "facts"))["layout"][3]["rows"] == 136


@pytest.mark.parametrize("place", range(3), ids=["light", "auto", "dark"])
def test_each_cause_has_a_colour_of_its_own(place: int) -> None:
    style = page.asset("style.css")
    palette = [block for block in re.findall(r":root[^{]*{([^}]*)}", style) if "--client:" in block][place]
    colours = dict(re.findall(r"--(\w+): (#\w+)", palette))
    drawn = [*CAUSES, "flight", "limit", *(name for name in colours if name.startswith("kind_"))]
    assert len({colours[name] for name in drawn}) == len(drawn)
    assert all(f".cause-{cause} {{ fill: var(--{cause}); }}" in style for cause in CAUSES)


def test_tls_without_secrets_has_a_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    outcome = run_here("analyze", recorded("tls13-go.pcap"), "--format", "html", "-o", str(path))
    assert outcome.code == 4 and "the report has what is visible without them" in outcome.err
    text = Read(path.read_text()).text
    assert "1 TLS connection without secrets" in text and "offers HTTP/2, handshake 1.80 ms" in text
    assert "NODE_OPTIONS=--tls-keylog=FILE" in text and "Time by cause" not in text


def test_failing_on_a_severity_and_no_grpc(tmp_path: Path) -> None:
    path = str(tmp_path / "report.html")
    asked = ("--format", "html", "-o", path, "--fail-on")
    assert run_here("analyze", recorded("rtt205-go-16000.pcap"), *asked, "warning").code == 1
    assert Path(path).stat().st_size > 100_000
    assert run_here("analyze", recorded("impl-go.pcap"), *asked, "warning").code == 0
    assert run_here("analyze", str(REPOSITORY / "README.md"), "--format", "html", "-o", path).code == 3
