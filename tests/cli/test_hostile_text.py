"""Whatever a header holds, every text report shows it escaped or not at all, in lines that stay aligned and narrow."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
from rich.cells import cell_len
from support import require_tool, run_here

from grpcdiag.analyzer.analysis import analyze, of_part
from grpcdiag.analyzer.selection.narrow import read
from grpcdiag.analyzer.selection.selection import Selection
from grpcdiag.analyzer.views.excerpt import excerpt, slowest
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.reports import terminal, timeline

VALUES = {
    "markup": b"/[bold red]x[/bold red]<script>alert(1)</script>|**a**`b`",
    "escape": b"/\x1b[31mred\x1b]0;title\x07\x1b[2J\r\n\x08 \x9b2J",
    "bidi": "/\u202egpj.exe\u202c\u2066x\u2069\u200b\u200f\ufeff".encode(),
    "long": b"/" + b"m" * 1_000_000,
    "broken": b"/\xff\xfe\xc3\x28\xed\xa0\x80ok\xf5",
    "combining": "/e\u0301a\u0308\u0323".encode() + "z\u0335".encode() * 40,
    "wide": "/\u6f22\u5b57\u30ab\u30ca\U0001f600\u200d\U0001f600\uff21".encode(),
}
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Characters that a terminal obeys or does not show."""
WIDTHS = (40, 80, 100, 160, 200)

every_value = pytest.mark.parametrize("name", VALUES)


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One capture for each value, which is its methods, metadata, agent, error message and GOAWAY text."""
    folder = tmp_path_factory.mktemp("hostile")
    return {name: capture(value, folder / f"{name}.pcap") for name, value in VALUES.items()}


class Raw(str):
    """A method of any bytes."""

    raw: bytes

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return self.raw


def capture(value: bytes, path: Path) -> Path:
    conversation = opened()
    for side in ("client", "server"):  # h2 would refuse to send or to take such values
        peer = conversation.peer(side)  # type: ignore[arg-type]
        peer.config.validate_outbound_headers = peer.config.validate_inbound_headers = False
        peer.config.normalize_outbound_headers = False
        peer.decoder.max_header_list_size = 1 << 24
        peer.encoder.encode = partial(peer.encoder.encode, huffman=False)  # which takes hpack minutes for a megabyte
    short = value[1:2000]  # h2 takes a megabyte once per block
    metadata = [(b"user-agent", short), (b"x-secret", b"CANARY" + short)]
    method = Raw(value.decode("latin-1"))
    method.raw = value
    for _ in range(4):
        conversation.unary("/demo.Plain/Call", status=0)
    for _ in range(4):
        conversation.unary(method, status=13, message=method[:2000], metadata=metadata)
    conversation.goaway("server", 11, 0, debug=value[:2000])
    path.write_bytes(write_pcap(Link().carry(conversation)))
    return path


def judge(text: str, width: int | None = None) -> None:
    """Nothing obeyed, no secret, no line wider than the terminal."""
    assert text.strip()
    assert not OBEYED.search(text)
    assert "CANARY" not in text
    if width:
        assert max(cell_len(line) for line in text.splitlines()) <= width


@every_value
def test_terminal(captures: dict[str, Path], name: str) -> None:
    analysis = analyze([str(captures[name])])
    assert any(method.method != "/demo.Plain/Call" for method in analysis.methods)
    for width in WIDTHS:
        judge(terminal.render(analysis, width=width), width)
    paths, everything = [str(captures[name])], Selection(method="*")
    narrowed = of_part(paths, read(paths, everything), everything)
    judge(terminal.render(narrowed, width=80), 80)


@every_value
def test_timeline(captures: dict[str, Path], name: str) -> None:
    path = [str(captures[name])]
    part, worst = excerpt(path, 0), slowest(path, 3, Selection())
    for width in WIDTHS:
        for text in (timeline.render(part, width=width), timeline.slowest(worst, width=width)):
            judge(text, width)
            lanes = [line for line in text.splitlines() if line.endswith("|")]
            assert {cell_len(line) for line in lanes} == {width}, "every lane ends in the same column"


@every_value
def test_tables_stay_aligned(captures: dict[str, Path], name: str) -> None:
    outcome = run_here("rpcs", str(captures[name]))
    assert outcome.code == 0
    judge(outcome.text)
    head, *lines = outcome.text.splitlines()
    column = head.index("duration") + len("duration")
    for line in lines:
        cells = 0
        for place, character in enumerate(line):
            if cells == column:
                assert line[place - 1] == "s", "the unit of the duration"
                assert character == " "
                break
            cells += cell_len(character)
        else:
            pytest.fail("the line is shorter than the columns in front of the status")


@every_value
def test_compare(captures: dict[str, Path], name: str) -> None:
    other = "markup" if name != "markup" else "wide"
    outcome = run_here("compare", str(captures[name]), str(captures[other]), env={"COLUMNS": "100"})
    assert outcome.code == 0, outcome.err
    judge(outcome.text)
    assert max(cell_len(line) for line in outcome.text.splitlines()) <= 100


def test_verify(captures: dict[str, Path]) -> None:
    require_tool("tshark")
    for name in ("escape", "wide"):
        outcome = run_here("verify", str(captures[name]))
        assert outcome.code in (0, 1), outcome.err
        judge(outcome.text)


@every_value
def test_explain_and_messages(name: str) -> None:
    text = VALUES[name][:5000].decode("latin-1").replace("\0", "")
    outcome = run_here("explain", text)
    assert outcome.code == 2
    assert not OBEYED.search(outcome.err)


@every_value
def test_a_method_that_is_not_there(captures: dict[str, Path], name: str) -> None:
    outcome = run_here("analyze", str(captures[name]), "--method", "\x1b[31mnone\u202e")
    assert outcome.code == 2
    assert not OBEYED.search(outcome.err)
    assert len(outcome.err) < 20_000


@every_value
@pytest.mark.parametrize("command", [("analyze",), ("timeline", "-c", "0"), ("timeline", "--worst", "2"), ("rpcs",)])
def test_in_ascii_too(captures: dict[str, Path], name: str, command: tuple[str, ...]) -> None:
    outcome = run_here(*command, str(captures[name]), charset="ascii", env={"COLUMNS": "80"})
    assert outcome.code == 0, outcome.err
    assert outcome.out.isascii()
    if command[0] != "rpcs":
        judge(outcome.text, 80)


def test_json_is_json(captures: dict[str, Path]) -> None:
    for path in captures.values():
        outcome = run_here("analyze", "--json", str(path))
        assert json.loads(outcome.out)["totals"]["rpcs"] == 8
        assert outcome.out.isascii()
