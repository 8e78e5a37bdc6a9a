"""The text of a bug report: exact text, hostile text, length, what was ruled out, masked commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from injected import injected
from markup import HOSTILE, kinds, parsed
from msgspec.structs import replace
from support import SNAPSHOTS, recorded
from test_markdown import SOME, check, harmless

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.views.issue_evidence import IssueEvidence, collect_evidence
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.reports import attachment
from grpcdiag.reports.attachment import FORMS, Contents, Form, Recorded
from grpcdiag.reports.attachment.command import masked, whole
from grpcdiag.reports.attachment.ruled_out import list_ruled_out

FILES = (("capture.pcap", "packets"), ("report.html", "to look at"), ("analysis.json", "figures"))


def contents(name: str, form: Form = FORMS[0], side: str = "client") -> Contents:
    file = recorded(f"{name}.pcap" if side == "client" else f"{name}.{side}.pcap")
    analysis = analyze([file])
    return Contents(analysis=analysis, evidence=collect_evidence([file], analysis), form=form, version="0", files=FILES)


@pytest.fixture(scope="module")
def usual() -> Contents:
    return contents("rtt205-go-16000")


@pytest.mark.parametrize(
    ("name", "form"), [("rtt205-go-16000", "grpc-go"), ("too-many-pings", "generic"), ("impl-tonic", "tonic")]
)
def test_snapshot(name: str, form: str, update_snapshots: bool) -> None:
    text = attachment.render(contents(name, attachment.named(form)))
    check(f"attach-{name}-{form}.md", text, update_snapshots)


# --- hostile text ---


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> tuple[Analysis, IssueEvidence]:
    """A capture whose methods, agents, messages and GOAWAY text are strangers'."""
    talk = opened()
    for number, text in enumerate(HOSTILE):
        words = re.sub(r"[\0\r\n]+", " ", text.encode(errors="replace").decode()).strip()
        metadata = [(b"user-agent", words.encode()), (b"x", words.encode())]
        talk.unary(f"/{words}", metadata=metadata, status=number % 16, message=words)
    talk.goaway("server", 11, 0, debug="".join(HOSTILE[:5]).encode())
    path = tmp_path_factory.mktemp("strange") / "strange.pcap"
    path.write_bytes(write_pcap(Link().carry(talk)))
    analysis = analyze([str(path)])
    return analysis, collect_evidence([str(path)], analysis)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_hostile_capture_is_text(strange: tuple[Analysis, IssueEvidence], form: Form) -> None:
    analysis, shown = strange
    page = attachment.render(Contents(analysis=analysis, evidence=shown, form=form, version="0", files=FILES))
    raw = {line for token in parsed(page) if token.type.startswith("html") for line in token.content.splitlines()}
    ours = re.compile(r"<details><summary>[\w ,]+</summary>|</details>|<!-- TO FILL: [^<>]+ -->|<!--|-->|[^<>]*")
    assert all(ours.fullmatch(line) for line in raw), raw
    assert not {"link_open", "image", "hr", "s_open"} & kinds(page)
    assert all(c.isprintable() or c == "\n" for c in page)
    assert len(page.encode()) < 60_000


@pytest.mark.parametrize("text", [*HOSTILE, "A" * 1_000_000, "`|@a " * 200_000])
def test_hostile_text_is_text(text: str, usual: Contents) -> None:
    page = attachment.render(with_text(usual, text))
    assert len(page.encode()) < 60_000
    if len(text) < 1_000:
        harmless(bodies(page), bodies(attachment.render(with_text(usual, "word"))))
    head = page[: page.index("-->")]
    assert head.startswith("<!--")
    assert "@" not in head.replace("bug.md at", "")
    assert "--" not in head[4:]


def with_text(usual: Contents, text: str) -> Contents:
    work = tuple(replace(row, method=text) for row in usual.evidence.work)
    return replace(
        usual,
        analysis=replace(injected(usual.analysis, text), apart=None),
        evidence=replace(usual.evidence, work=work),
        scrubbed=(text, text),
        recorded=Recorded("client", text, text, masked=True, exit_code=1),
    )


def bodies(page: str) -> str:
    """Without the comment at the beginning, in which the reporter reads a title and what to do."""
    return page[page.index("-->") + 3 :]


# --- length ---


def test_the_longest_text_is_below_the_limit(usual: Contents) -> None:
    """Everything as long as it can be: parts are left out, and named."""
    text = "w`|@# " * 200_000
    model = usual.analysis.findings[0]
    findings = [replace(model, id=f"finding-{n}", evidence=model.evidence * 5, scope=model.scope) for n in range(60)]
    large = replace(usual.analysis, findings=tuple(findings), connections=usual.analysis.connections * 100)
    large = replace(large, verdict=replace(large.verdict, finding="finding-0"), methods=large.methods * 200)
    found = injected(large, text)
    one = replace(
        with_text(usual, text),
        analysis=replace(found, connections=found.connections * 90, methods=found.methods * 90, apart=None),
        evidence=replace(usual.evidence, work=usual.evidence.work * 100),
    )
    for form in FORMS:
        page = attachment.render(replace(one, form=form))
        assert len(page.encode()) < 60_000
        assert "Left out for length: " in page
        assert page.count("<details>") == page.count("</details>")
        for section in form.sections:
            assert f"\n{section.heading}\n" in page


@pytest.mark.parametrize("files", SOME)
def test_every_capture_and_form(files: tuple[str, ...]) -> None:
    try:
        analysis = analyze(files)
    except NoGrpcError:
        return
    shown = collect_evidence(files, analysis)
    for form in FORMS:
        one = Contents(analysis=analysis, evidence=shown, form=form, version="0", files=FILES)
        page = attachment.render(one)
        assert len(page.encode()) < 60_000
        assert "Left out" not in page
        assert page.count("<!-- TO FILL: ") == attachment.blanks(one) == page.count("_____")
        for finding in analysis.findings:
            assert f"`{finding.id}`" in page


# --- what was ruled out ---


def test_every_detector_is_told_once(usual: Contents) -> None:
    analysis = usual.analysis
    silent = [name for name, _, _ in list_ruled_out(analysis)]
    told = {f.id for f in analysis.findings} | {s.id for s in analysis.skipped}
    judged = [detector.id for detector in DETECTORS if not detector.about.needs_processes]
    assert sorted([*silent, *told]) == sorted(judged), "threads were not recorded"


def test_figures_that_rule_out() -> None:
    seen = {name: said for name, _, said in list_ruled_out(contents("rtt205-go-16000").analysis)}
    assert seen["loss-recovery"] == "0 of 136 packets retransmitted; `loss_recovery`: no RPC time"
    assert seen["rpc-errors"] == "5 of 5 RPCs ended with OK"
    assert seen["server-latency"].startswith("`server`: 2.07 ms of 2.05 s of RPC time (0.1%), too little")
    lost = {name: said for name, _, said in list_ruled_out(contents("too-many-pings").analysis)}
    assert lost["server-latency"].endswith("(98.6%), but in another pattern")


# --- what the reporter is told ---


def test_what_speaks_against_posting(usual: Contents) -> None:
    assert any("No setting of grpc-go" in line for line in attachment.foreign(usual))
    java = list(attachment.foreign(replace(usual, form=attachment.named("grpc-java"))))
    assert java == ["No end of the captured connections is known to run grpc-java."]
    assert not list(attachment.foreign(contents("too-many-pings")))
    assert not list(attachment.foreign(replace(usual, form=attachment.named("generic"))))


@pytest.mark.parametrize(
    ("names", "form"),
    [
        (("grpc-go/1.85.0",), "grpc-go"),
        (("grpc-python/1.85.1", "grpc-go"), "grpc"),
        (("grpc-java-netty/1.75.0",), "grpc-java"),
        (("grpc-node-js/1.14.7",), "grpc-node"),
        ((None, "tonic (h2)"), "tonic"),
        (("grpc-dotnet/2.0", None), "generic"),
        ((), "generic"),
    ],
)
def test_the_form_of_an_implementation(names: tuple[str | None, ...], form: str) -> None:
    assert attachment.of_implementation(*names).name == form


# --- commands ---


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["/opt/x/bench", "--calls", "1000", "--size=16k"], "PROGRAM --calls 1000 --size=16k"),
        (["timeout", "40", "/a/.venv/bin/python3.12", "cli.py"], "timeout 40 python3.12 …"),
        (["ghz", "--insecure", "-c", "50", "-n", "2000", "h:1"], "ghz --insecure -c 50 -n 2000 …"),
        (["env", "TOKEN=abc", "go", "run", "."], "env … go … …"),
        (["java", "-Dkey=1", "-Xmx512m", "-jar", "a.jar"], "java -Dkey=… … … …"),
        (["x", "--api-key", "12345", "--pin=1234", "-psecret"], "PROGRAM --api-key … --pin=… …"),
        (["x", "--", "1.5s", "true"], "PROGRAM … 1.5s true"),
        ([], ""),
    ],
)
def test_masked_commands(typed: list[str], shown: str) -> None:
    assert masked(typed) == shown


@given(st.lists(st.text(min_size=8, max_size=40), max_size=8))
def test_no_word_is_shown(words: list[str]) -> None:
    shown = masked(["run", *words])
    for word in words:
        assert word not in shown or re.fullmatch(r"--?[A-Za-z][A-Za-z-]*=?|[\d.]+[a-zA-Z]*", word)
    assert whole(["a b", "c"]) == "'a b' c"


def test_the_snapshots_hold_no_path() -> None:
    for path in SNAPSHOTS.glob("attach-*.md"):
        assert str(Path.home()) not in path.read_text()


def test_the_suggested_title_has_statuses_as_they_are_written() -> None:
    assert "NOT_FOUND, INTERNAL" in attachment.title(contents("rpc-errors"))
