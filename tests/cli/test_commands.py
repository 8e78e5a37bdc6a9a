"""What every command has in common: help, exit codes, which stream says what."""

from __future__ import annotations

import gzip
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hyperframe.frame import HeadersFrame
from support import grpcdiag, recorded, run_here, synthetic

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Close, Link
from grpcdiag.version import describe_version

COMMANDS = (
    "analyze",
    "compare",
    "connections",
    "rpcs",
    "messages",
    "frames",
    "packets",
    "waits",
    "timeline",
    "explain",
    "verify",
    "watch",
)
TABLES = ("connections", "rpcs", "messages", "frames", "packets", "waits")
PCAP_HEADER = 24


def test_help_lists_every_command_and_exit_code() -> None:
    outcome = grpcdiag("--help")
    assert outcome.code == 0
    assert all(command in outcome.text for command in COMMANDS)
    for part in ("0: done", "1: --fail-on", "2: wrong usage", "3: input", "4: no gRPC", "130: interrupted"):
        assert part in " ".join(outcome.text.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    outcome = run_here(command, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"grpcdiag {command}" in outcome.text
    assert "\x1b[" not in outcome.text


def test_version_is_short() -> None:
    outcome = grpcdiag("--version")
    assert outcome.code == 0
    assert re.fullmatch(r"grpcdiag \d+\.\d+\.\d+ \(commit .+; (release|quick) build.*\)\n", outcome.text)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (("63ca946", "2026-11-22", "release"), "commit 63ca946, built 2026-11-22; release build"),
        (
            (None, None, "quick"),
            "commit and build date unknown; quick build, a third of the speed of a release",
        ),
    ],
)
def test_version_names_the_build(build: object, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "__build__", build)
    assert describe_version() == f"grpcdiag {_core.__version__} ({told})"


def test_version_loads_no_libraries() -> None:
    script = "import sys; sys.argv[1:] = ['--version']; from grpcdiag.__main__ import run; run(); "
    script += "print(*[m for m in ('numpy', 'polars', 'typer', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nosuchcommand"],
        ["analyze"],
        ["analyze", "--nosuchoption", "x"],
        ["analyze", "--format", "xml", "x"],
        ["analyze", "--fail-on", "terrible", "x"],
        ["rpcs", "--format", "xml", "x"],
        ["rpcs", "--limit", "-1", "x"],
        ["analyze", "--port", "0", "x"],
        ["analyze", "--port", "65536", "x"],
        ["explain", "no-such-finding"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    outcome = run_here(*arguments)
    assert outcome.code == 2
    assert outcome.err or arguments == []
    if arguments:
        assert outcome.out == b""


def changed(tmp_path: Path, at: int, data: bytes, name: str = "changed.pcap") -> str:
    whole = Path(recorded("rpc-errors.pcap")).read_bytes()
    path = tmp_path / name
    path.write_bytes(whole[:at] + data + whole[at + len(data) :])
    return str(path)


@pytest.mark.parametrize("command", ["analyze", *TABLES])
def test_no_capture_is_3(command: str, tmp_path: Path) -> None:
    """Nothing on standard output, one sentence on standard error that names the file and what to do."""
    text, empty = tmp_path / "text.pcap", tmp_path / "empty.pcap"
    text.write_text("No. Time Source Destination\n")
    empty.write_bytes(b"")
    for path, says in ((tmp_path / "missing.pcap", "No such file"), (text, "is not a capture"), (empty, "is empty")):
        outcome = run_here(command, str(path))
        assert (outcome.code, outcome.out) == (3, b"")
        assert outcome.err.startswith(f"grpcdiag: {path}: ")
        assert says in outcome.err


@pytest.mark.parametrize(
    ("magic", "says"), [(0xA1B2CD34, "Kuznetzov's modified pcap"), (0x00000000, "is not a capture")]
)
def test_other_formats_are_named(magic: int, says: str, tmp_path: Path) -> None:
    outcome = run_here("analyze", changed(tmp_path, 0, struct.pack("<I", magic)))
    assert outcome.code == 3
    assert says in outcome.err


def test_a_folder_is_3(tmp_path: Path) -> None:
    assert grpcdiag("analyze", str(tmp_path)).code == 3


def test_tls_without_secrets_is_reported_and_4(tmp_path: Path) -> None:
    """What handshakes and records tell goes where a report goes; the exit code says that there is no gRPC to read."""
    path, report = recorded("tls13-go.pcap"), tmp_path / "report.json"
    shown = run_here("analyze", path)
    assert (shown.code, b"how to get the secrets" in shown.out) == (4, True)
    assert "no gRPC traffic found" in shown.err
    assert "are encrypted with TLS, and the secrets are missing" in shown.err
    written = run_here("analyze", path, "--json", "-o", str(report), "--fail-on", "info")
    assert (written.code, written.out) == (4, b"")
    assert json.loads(report.read_text())["tls"]["connections"][0]["version"] == "TLS 1.3"
    rows = run_here("rpcs", path)
    assert (rows.code, rows.out) == (4, b"")
    assert "--keylog FILE" in rows.err


def test_no_grpc_is_4_and_says_what_there_is(tmp_path: Path) -> None:
    no_packets, other_link = tmp_path / "none.pcap", changed(tmp_path, 20, struct.pack("<I", 147))
    no_packets.write_bytes(Path(recorded("rpc-errors.pcap")).read_bytes()[:PCAP_HEADER])
    for file, says in (
        (str(no_packets), "has no packets"),
        (other_link, "link type 147 is not supported"),
        (no_tcp(tmp_path), "no TCP was seen"),
        (no_http2(tmp_path), "no HTTP/2 was seen"),
    ):
        outcome = run_here("analyze", file)
        assert (outcome.code, outcome.out) == (4, b""), file
        assert outcome.err.startswith("grpcdiag: no gRPC traffic found: ")
        assert says in outcome.err, outcome.err


def test_a_damaged_file_is_told_with_and_without_rpcs(tmp_path: Path) -> None:
    content, cut = Path(recorded("impl-go.pcap")).read_bytes(), tmp_path / "cut.pcap"
    cut.write_bytes(content[:300])
    where = f"; {cut}: byte 286 (after packet 3): the file ends inside a record: 2 of 16 bytes are missing"
    assert run_here("analyze", str(cut)).err.rstrip().endswith(where)
    cut.write_bytes(content[:30_000])
    assert b"quality: 1 damaged place in the file;" in run_here("analyze", str(cut)).out
    assert (
        b"Quality of the capture: 1 damaged place in the file."
        in run_here("analyze", str(cut), "--format", "markdown").out
    )


def test_a_folder_is_no_capture(tmp_path: Path) -> None:
    outcome = run_here("analyze", str(tmp_path))
    says = f"grpcdiag: {tmp_path}: cannot be read: Is a directory: name its captures, or use grpcdiag fleet analyze\n"
    assert (outcome.code, outcome.err) == (3, says)


def test_a_header_block_that_the_server_refused_is_a_request() -> None:
    outcome = run_here("analyze", recorded("wild/nghttp2-metadata-cut.pcap.zst"))
    assert outcome.code == 4
    assert "on 6 connections the server sent GOAWAY COMPRESSION_ERROR after up to 147,456 bytes of it." in outcome.err
    assert "The metadata is probably larger than the server accepts" in outcome.err
    assert "without a request" not in outcome.err


@pytest.mark.parametrize(
    ("size", "close", "says", "large"),
    [
        (16_000, "server", "on 1 connection the server closed without GOAWAY after up to 16,000 bytes of it", True),
        (100, "server", "on 1 connection the server closed without GOAWAY after up to 100 bytes of it", False),
        (16_000, "client", "HTTP/2 connections without a request", False),
    ],
)
def test_a_server_that_closes_within_a_header_block(
    size: int, close: Close, says: str, large: bool, tmp_path: Path
) -> None:
    conv = opened()
    frame = HeadersFrame(1, b"\0" * size)  # neither END_HEADERS nor a field that HPACK can end
    conv.inject("client", frame.serialize(), deliver=False)
    conv.advance(5_000_000)
    path = tmp_path / "cut.pcap"
    path.write_bytes(write_pcap(Link(rtt_ns=conv.rtt_ns, close=close).carry(conv)))
    error = run_here("analyze", str(path)).err
    assert says in error
    assert ("may be larger than the server accepts" in error) == large


def test_a_capture_without_rpcs_names_its_http2_requests() -> None:
    outcome = run_here("analyze", synthetic("not_grpc").file)
    assert (outcome.code, b"3 HTTP/2 requests are no RPCs" in outcome.out) == (4, True)
    assert outcome.err == "grpcdiag: no gRPC traffic found: HTTP/2 without gRPC: 3 other streams\n"
    assert run_here("analyze", synthetic("not_grpc").file, "--format", "markdown").out == b""


def test_a_key_log_decrypts() -> None:
    outcome = run_here("analyze", recorded("tls13-go.pcap"), "--keylog", recorded("tls13-go.keys"))
    assert outcome.code == 0
    assert "100 RPCs" in " ".join(outcome.text.split())


def test_a_missing_key_log_is_3(tmp_path: Path) -> None:
    outcome = run_here("rpcs", recorded("tls13-go.pcap"), "--keylog", str(tmp_path / "none"))
    assert outcome.code == 3
    assert "the key log cannot be read: No such file" in outcome.err


def ethernet(protocol: int, body: bytes) -> bytes:
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    )
    return bytes(12) + b"\x08\x00" + ip + body


def pcap_of(path: Path, packets: list[bytes]) -> str:
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for number, packet in enumerate(packets):
        data += struct.pack("<IIII", 1_700_000_000, number, len(packet), len(packet)) + packet
    path.write_bytes(data)
    return str(path)


def no_tcp(folder: Path) -> str:
    udp = struct.pack("!HHHH", 53, 53, 12, 0) + b"data"
    return pcap_of(folder / "udp.pcap", [ethernet(17, udp)] * 3)


def no_http2(folder: Path) -> str:
    def segment(seq: int, payload: bytes) -> bytes:
        return struct.pack("!HHIIBBHHH", 40000, 80, seq, 0, 5 << 4, 0x18, 500, 0, 0) + payload

    text = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"
    return pcap_of(folder / "http1.pcap", [ethernet(6, segment(1 + n * len(text), text)) for n in range(20)])


@pytest.mark.parametrize(
    ("name", "level", "code"),
    [
        ("rtt205-go-16000.pcap", "info", 1),
        ("rtt205-go-16000.pcap", "warning", 1),
        ("rtt205-go-16000.pcap", "critical", 1),
        ("rtt205-go-14000.pcap", "critical", 0),
        ("rtt205-go-14000.pcap", "warning", 0),
    ],
)
def test_fail_on(name: str, level: str, code: int) -> None:
    outcome = run_here("analyze", recorded(name), "--fail-on", level, "--json")
    assert outcome.code == code
    assert outcome.out.startswith(b"{"), "the report is written all the same"


def test_a_truncated_file_is_analysed_and_its_damage_told() -> None:
    outcome = run_here("analyze", recorded("truncated.pcap"))
    assert outcome.code == 0
    assert "byte 1,056,337" in outcome.text
    assert "500 RPCs" in " ".join(outcome.text.split())


def test_messages_go_to_standard_error_only(tmp_path: Path) -> None:
    outcome = grpcdiag("rpcs", recorded("rpc-errors.pcap"), "--limit", "3")
    assert outcome.code == 0
    assert len(outcome.text.splitlines()) == 4
    assert "299 more rows" in outcome.err
    assert grpcdiag("analyze", recorded("rpc-errors.pcap")).err == ""


@pytest.mark.parametrize("arguments", [["analyze"], ["analyze", "--json"], ["rpcs"], ["connections"]], ids=" ".join)
def test_standard_input_equals_the_file(arguments: list[str]) -> None:
    data = Path(recorded("rpc-errors.pcap")).read_bytes()
    piped, named = grpcdiag(*arguments, "-", stdin=data), run_here(*arguments, recorded("rpc-errors.pcap"))
    assert piped.code == named.code == 0
    assert after_the_name(piped.text) == after_the_name(named.text)


def after_the_name(text: str) -> str:
    """Without the part of a report that names the file."""
    for start in ("\n╭", '"capture":'):
        _, found, rest = text.partition(start)
        if found:
            return rest
    return text


@pytest.mark.parametrize("command", ["rpcs", "frames"])
def test_gzip_equals_plain(command: str, tmp_path: Path) -> None:
    packed = tmp_path / "packed.pcap.gz"
    packed.write_bytes(gzip.compress(Path(recorded("impl-go.pcap")).read_bytes()))
    plain = run_here(command, recorded("impl-go.pcap"), "--format", "jsonl")
    assert run_here(command, str(packed), "--format", "jsonl").out == plain.out
    assert grpcdiag(command, "-", "--format", "jsonl", stdin=packed.read_bytes()).out == plain.out
    assert plain.out


def test_several_files_are_one_capture(tmp_path: Path) -> None:
    data = Path(recorded("impl-go.pcap")).read_bytes()
    middle = PCAP_HEADER
    for _ in range(40):
        middle += 16 + int.from_bytes(data[middle + 8 : middle + 12], "little")
    first, second = tmp_path / "a.pcap", tmp_path / "b.pcap"
    first.write_bytes(data[:middle])
    second.write_bytes(data[:PCAP_HEADER] + data[middle:])
    whole = run_here("rpcs", recorded("impl-go.pcap"), "--format", "jsonl")
    assert run_here("rpcs", str(second), str(first), "--format", "jsonl").out == whole.out


def test_output_file(tmp_path: Path) -> None:
    report, table = tmp_path / "report.json", tmp_path / "rows.csv"
    assert run_here("analyze", recorded("impl-go.pcap"), "--json", "-o", str(report)).out == b""
    assert report.read_text() == run_here("analyze", recorded("impl-go.pcap"), "--json").text
    assert run_here("rpcs", recorded("impl-go.pcap"), "--format", "csv", "-o", str(table)).out == b""
    assert table.read_text() == run_here("rpcs", recorded("impl-go.pcap"), "--format", "csv").text
    for command in ("analyze", "rpcs"):
        outcome = run_here(command, recorded("impl-go.pcap"), "-o", str(tmp_path / "none" / "x"))
        assert outcome.code == 2
        assert "cannot write" in outcome.err


def test_plain_text_without_a_terminal() -> None:
    assert "\x1b" not in grpcdiag("analyze", recorded("rtt205-go-16000.pcap")).text


def test_explain() -> None:
    outcome = run_here("explain", "slow-start-after-idle")
    assert outcome.code == 0
    for heading in ("What it finds", "What would refute it", "What to do", "References"):
        assert heading in outcome.text


def test_explain_lists_findings_and_suggests() -> None:
    lines = run_here("explain").text.splitlines()
    assert [line.split()[0] for line in lines] == [detector.id for detector in DETECTORS]
    assert all(line.endswith(".") for line in lines)
    for typed, meant in (("slow-strat-after-idle", "slow-start-after-idle"), ("nagle", "delayed-ack-nagle")):
        outcome = run_here("explain", typed)
        assert (outcome.code, outcome.text) == (2, "")
        assert f"no finding has the id '{typed}'; did you mean {meant}?" in outcome.err
    assert "grpcdiag explain lists all" in run_here("explain", "quux").err


@pytest.mark.parametrize("command", ["analyze", "timeline", "verify", "compare", "export", *TABLES])
def test_a_capture_is_never_written_over(tmp_path: Path, command: str) -> None:
    capture = tmp_path / "run.pcap"
    content = Path(recorded("impl-go.pcap")).read_bytes()
    capture.write_bytes(content)
    more = {"compare": [str(capture)], "timeline": ["--connection", "0"], "export": ["--format", "otlp"]}.get(
        command, []
    )
    outcome = run_here(command, str(capture), *more, "-o", str(capture))
    assert (outcome.code, capture.read_bytes() == content) == (2, True)
    assert "it is the capture itself" in outcome.err


def test_a_limit_that_is_larger_than_any_table() -> None:
    outcome = run_here("rpcs", recorded("impl-go.pcap"), "--limit", str(10**20), "--format", "csv")
    assert (outcome.code, len(outcome.text.splitlines()) > 1) == (0, True)


def test_connections_that_began_before_the_capture_are_in_its_beginning() -> None:
    shown = run_here("connections", recorded("wild/etcd-late.pcap.zst"), "--from", "0", "--format", "csv")
    assert [line.split(",")[0] for line in shown.text.splitlines()[1:]] == ["0", "1", "2", "3", "4", "5"]
