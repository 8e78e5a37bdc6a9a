"""The terminal report: exact text of three captures, nothing a capture could slip into a terminal, and its width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import SNAPSHOTS, recorded, recording

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.finding import Skipped
from grpcdiag.analyzer.model.text import safe
from grpcdiag.analyzer.views.excerpt import excerpt
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.reports import analysis_json, terminal

NASTY = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\n\x08\u202egpj.exe\u200b"


def named(name: str) -> Analysis:
    """The analysis under the file's bare name, so that the report does not depend on the place of the repository."""
    analysis = analyze([recorded(name)])
    return replace(analysis, files=(name,))


@pytest.mark.parametrize("name", ["rtt205-go-16000", "rpc-errors", "impl-java"])
def test_snapshot(name: str, update_snapshots: bool) -> None:
    text, path = terminal.render(named(f"{name}.pcap")), SNAPSHOTS / f"{name}.txt"
    if update_snapshots:
        path.write_text(text)
    assert text == path.read_text(), "to accept the new text: pytest --update-snapshots"


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("name", ["rtt205-go-16000", "rpc-errors", "impl-java", "deadline-exceeded"])
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    lines = terminal.render(named(f"{name}.pcap"), width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_what_is_a_part_of_another_finding_comes_after_it() -> None:
    analysis = named("rtt205-go-16000.pcap")
    whole = replace(analysis.findings[0], id="whole", severity="warning", lost_ns=None, share=None)
    part = replace(whole, id="a-part", part_of="whole")
    text = terminal.render(replace(analysis, findings=(part, whole)))
    assert text.index("1. warning whole") < text.index("2. warning a-part")


def test_streams_are_told_by_their_messages() -> None:
    text = " ".join(terminal.render(named("impl-go.pcap")).split())
    assert "/lab.v1.Lab/Bidi: 20 messages, " in text
    assert "response time 50.0 µs (p50)" in text
    assert "a second, both directions" not in terminal.render(named("rtt205-go-16000.pcap"))


def test_nothing_is_cut_away_at_80_columns() -> None:
    """Text wraps, it does not end in an ellipsis."""
    analysis = named("rtt205-go-16000.pcap")
    text = terminal.render(analysis, width=80)
    assert "…" not in text
    words = re.sub(r"[^\w.,/=]+", " ", text).split()
    for word in analysis.findings[0].explanation.replace(":", " ").split():
        assert word.strip("().:,") in " ".join(words), word


def test_the_figures_are_the_analysis() -> None:
    analysis = named("rtt205-go-16000.pcap")
    text = " ".join(terminal.render(analysis, width=200).split())
    assert "4 messages waited an extra round trip (205 ms each, 40% of RPC time)" in text
    assert "net.ipv4.tcp_slow_start_after_idle=0" in text
    shown, rest = analysis.findings[0].evidence[:4], analysis.findings[0].evidence[4:]
    assert all(f"#{item.packet} " in text for item in shown)
    assert rest
    assert not any(f"#{item.packet} " in text for item in rest)
    assert f"--json has {len(rest)} more packets and 2 more remedies" in text


def many() -> Analysis:
    """A report with a finding of every kind: grave ones that cost time, some that do not, parts of others, remarks."""
    analysis = named("rtt205-go-16000.pcap")
    model = analysis.findings[0]
    found = [
        replace(
            model,
            id=f"finding-{number}",
            title=f"Title of {number}",
            severity=("critical", "warning", "info")[number % 3],
            lost_ns=None if number % 5 == 0 else (26 - number) * 10_000_000,
            share=None if number % 5 == 0 else (26 - number) / 200,
            part_of="finding-1" if number % 10 == 0 else None,
            remedies=model.remedies if number % 2 else model.remedies[:1],
            evidence=model.evidence if number % 2 else model.evidence[:3],
            scope=replace(model.scope, connections=tuple(range(40)) if number == 1 else (number,)),
        )
        for number in range(25)
    ]
    found.sort(key=lambda finding: -(finding.lost_ns or 0))
    skipped = [Skipped("a", "it is dark"), Skipped("b", "it is dark"), Skipped("a", "it is dark"), Skipped("a", "why")]
    return replace(analysis, findings=tuple(found), skipped=tuple(skipped))


def test_snapshot_of_many_findings(update_snapshots: bool) -> None:
    text, path = terminal.render(many()), SNAPSHOTS / "many-findings.txt"
    if update_snapshots:
        path.write_text(text)
    assert text == path.read_text(), "to accept the new text: pytest --update-snapshots"


def test_of_many_findings_the_costliest_come_first_and_remarks_last() -> None:
    analysis, text = many(), terminal.render(many())
    heads = re.findall(r"^(\d+)\. +(critical|warning|info) (finding-\d+)", text, re.MULTILINE)
    assert [int(number) for number, _, _ in heads] == list(range(1, 18))
    lost = {finding.id: finding.lost_ns for finding in analysis.findings}
    costs = [lost[name] or 0 for _, _, name in heads]
    assert costs == sorted(costs, reverse=True)
    free = [severity for _, severity, name in heads if lost[name] is None]
    assert free == sorted(free), "critical before warning"
    remarks = text[text.index("also seen") : text.index("method   ")].splitlines()[1:-1]
    assert len(remarks) == 8
    assert text.index("verdict") < text.index("\n1. ") < text.index("also seen")


def test_a_finding_shows_a_part_and_says_where_the_rest_is() -> None:
    text = terminal.render(many())
    blocks = dict(re.findall(r"^ ?\d+\. +\w+ (finding-\d+)  (.*?)(?=^ ?\d+\. |^also seen)", text, re.M | re.S))
    for name, block in blocks.items():
        odd = int(name.removeprefix("finding-")) % 2
        assert len(re.findall(r"^ +#\d+ ", block, re.MULTILINE)) == (4 if odd else 3)
        assert ("8 more packets and 2 more remedies" in block) == bool(odd)
        assert f"grpcdiag explain {name}" in block
    assert "connections 0, 1, 2, 3, 4, 5, 6, 7 and 32 more" in blocks["finding-1"]
    assert "grpcdiag timeline" not in blocks["finding-1"], "the packets could be on any of the connections"
    assert "grpcdiag timeline FILE --connection 7 --from 2.823 --to 3.030" in blocks["finding-7"]
    assert "part of finding-1;" in blocks["finding-10"]
    assert "no latency cost measured" in blocks["finding-15"]


def test_a_round_trip_without_a_handshake_is_an_upper_bound() -> None:
    """Two of the connections were opened before the capture."""
    text = " ".join(terminal.render(named("wild/etcd-late.pcap.zst"), width=200).split())
    assert len(re.findall(r"\(opened before\) 1 1 at most 2\d\.\d ms", text)) == 2
    assert text.count("at most") == 2


def test_failed_calls_are_the_cost_of_a_finding() -> None:
    """As many as the client counted."""
    statuses = recording("rpc-errors").report["status"]
    failed = sum(number for name, number in statuses.items() if name != "0 OK")
    text = " ".join(terminal.render(named("rpc-errors.pcap")).split())
    assert f" {failed} RPCs failed; confidence high; connection 0;" in text


def test_the_packets_of_a_finding_are_in_the_time_line_it_names() -> None:
    analysis = named("rtt205-go-16000.pcap")
    found = re.search(r"--connection (\d+) --from ([\d.]+) --to ([\d.]+)", terminal.render(analysis))
    assert found
    begin, end = (round(float(found[n]) * 1e9) for n in (2, 3))
    part = excerpt([recorded("rtt205-go-16000.pcap")], int(found[1]), begin=begin, end=end)
    assert {item.packet for item in analysis.findings[0].evidence[:4]} <= set(part.packets.packet.tolist())


def test_what_was_not_judged_is_told_once_per_reason() -> None:
    lines = [line for line in terminal.render(many()).splitlines() if line.startswith("not judged")]
    assert lines == ["not judged: a, b: it is dark", "not judged: a: why"]


def nasty_capture(folder: Path) -> Path:
    """A capture whose header values try to command a terminal and to be rich's markup."""
    conversation = opened()
    conversation.unary("/a.B/[bold red]x[/bold red]")
    conversation.unary("/a.B/\x1b[31mred\x1b]0;t\x07")
    conversation.unary("/a.B/\u202etxt", metadata=[(b"x", NASTY.replace("\r\n", "").encode())])
    path = folder / "nasty.pcap"
    path.write_bytes(write_pcap(Link().carry(conversation)))
    return path


@pytest.mark.parametrize("colour", [False, True])
def test_a_capture_cannot_command_the_terminal(tmp_path: Path, colour: bool) -> None:
    analysis = analyze([str(nasty_capture(tmp_path))])
    assert any("\x1b" in (method.method or "") for method in analysis.methods), "the capture lost its point"
    text = terminal.render(analysis, width=120, colour=colour)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)  # colours that the report itself may use
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u200b]", plain)
    assert "\x1b]0" not in text
    assert r"\x1b[31mred" in plain
    assert "[bold red]x[/bold red]" in plain


def test_json_keeps_the_bytes_and_stays_ascii(tmp_path: Path) -> None:
    text = analysis_json.render(analyze([str(nasty_capture(tmp_path))]))
    assert text.isascii()
    assert r"\u001b[31mred" in text


def test_safe() -> None:
    assert safe("plain ünïcode 漢字") == "plain ünïcode 漢字"
    assert safe(NASTY).isprintable()
    assert safe("\x1b[2J") == r"\x1b[2J"
    assert safe("a\nb\tc") == r"a\nb\tc"


def test_no_colour_means_no_escapes() -> None:
    assert "\x1b" in terminal.render(named("rtt205-go-16000.pcap"), colour=True)
    assert "\x1b" not in terminal.render(named("rtt205-go-16000.pcap"), colour=False)
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", terminal.render(named("rtt205-go-16000.pcap"), colour=True))
    assert coloured.split() == terminal.render(named("rtt205-go-16000.pcap")).split()
