"""`grpcdiag watch`: lines of JSON, the flight recorder, the terminal."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, cast
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support import PATIENCE_S, Outcome, free_port, gone, recorded, require_tool, run_here, wait_until
from terminals import Terminal

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.live.interval import CallFigures
from grpcdiag.capture import namespaces, tcpdump
from grpcdiag.capture.errors import RecordingError
from grpcdiag.capture.moments import Saved
from grpcdiag.cli.watching import errands
from grpcdiag.cli.watching.call_timeline import draw_call
from grpcdiag.cli.watching.loop import AFTER_INTERVALS, Hints

FILE = Path(recorded("rpc-errors.pcap"))
WATCH = [sys.executable, "-m", "grpcdiag", "watch"]


def watch(*words: str, stream: bytes) -> tuple[list[dict[str, Any]], Outcome]:
    """What it says of a stream that is standard input, in this process."""
    with TemporaryFile() as file, standard_input(file):
        file.write(stream)
        file.seek(0)
        done = run_here("watch", "--json", "-", *words)
    return [json.loads(line) for line in done.out.splitlines()], done


@contextlib.contextmanager
def standard_input(file: IO[bytes]) -> Iterator[None]:
    kept = os.dup(0)
    os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def totals(path: Path) -> Any:
    return json.loads(run_here("analyze", "--json", str(path)).text)


def test_a_stream_is_reported_and_the_moment_is_written(tmp_path: Path) -> None:
    """One condition is met and another is not; the capture tells what the stream tells."""
    out = tmp_path / "flight"
    triggers = ["--trigger", "status=failed rate > 0%", "--trigger", "p99(/no.Such/*) > 1us"]
    intervals, done = watch("-o", str(out), "--keep", "1h", *triggers, stream=FILE.read_bytes())
    assert done.code == 0, done.err
    last, whole = intervals[-1], totals(FILE)
    assert last["packets"] == whole["capture"]["packets"]
    assert [one["id"] for one in last["findings"]] == [one["id"] for one in whole["findings"]]
    assert {one["method"] for one in last["methods"]} == {one["method"] for one in whole["methods"]}
    assert all(met.startswith("status=failed rate > 0%: ") for one in intervals for met in one["met"])
    (written,) = [text for one in intervals for text in one["written"]]
    (file,) = out.glob("*.pcapng")
    assert written.startswith(f"{file}: ")
    again = totals(file)
    assert (again["totals"], again["methods"]) == (whole["totals"], whole["methods"])
    assert b"grpcdiag watch: status=failed rate > 0%" in file.read_bytes()
    assert out.stat().st_mode & 0o777 == 0o700 and file.stat().st_mode & 0o777 == 0o600
    assert sum(path.stat().st_size for path in out.glob("ring-*.pcap")) >= FILE.stat().st_size


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--json", "--trigger", "p99 > 1", "-o", "x"], 2, "--trigger 'p99 > 1' is not a trigger: write p99 > 50ms"),
        (["--json", "--trigger", "finding:info"], 2, "name their folder with -o"),
        (["--json", "--keep", "1x"], 2, "'1x' is not what to keep"),
        (["--json", "--filter", "no filter"], 2, "filter"),
        (["--json", "-i", "no-such-if"], 2, "no interface has the name 'no-such-if'"),
        (["run.pcap"], 2, "for a file use grpcdiag analyze"),
        (["--json", "tcp://a"], 2, "write tcp://HOST:PORT"),
        (["--json", "tcp://127.0.0.1:1"], 3, "cannot connect: Connection refused"),
        (["--json", "--for", "10"], 2, "write a time such as 30s"),
        (["--json", "--fail-on", "nonsense"], 2, "--fail-on 'nonsense' is not a trigger"),
        (["--json", "--fail-on", "trigger"], 2, "need --trigger"),
        (["--json", "--exec", "true"], 2, "need --trigger"),
        (["--json", "-", "--trigger", "p99 > 1s", "-o", "x", "--exec", "/no/such 'thing"], 2, "--exec /no/such 'thing"),
        (["--json", "-", "--trigger", "p99 > 1s", "-o", "x", "--exec", "/no/such"], 2, "no such program"),
        (["--json", "--openmetrics", "9464"], 2, "write :PORT"),
        (["--json", "--pid", "2147483647"], 2, "--pid 2147483647: No such process"),
        ([], 2, "watch draws on a terminal: use --json elsewhere"),
    ],
)
def test_wrong_usage(words: list[str], code: int, why: str) -> None:
    done = run_here("watch", *words)
    assert (done.code, why in done.err) == (code, True), done.err


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        (["p99 > 1000s", "finding:slow-connect"], 0),
        (["p99 > 1us"], 1),
        (["p99 > 1000s", "info"], 1),
        (["status=failed rate > 0%"], 1),
    ],
)
def test_the_exit_code_says_whether_a_rule_was_met(rules: list[str], code: int) -> None:
    """The capture has failed calls, and findings about them."""
    _, done = watch(*(word for rule in rules for word in ("--fail-on", rule)), stream=FILE.read_bytes())
    assert done.code == code, done.err
    assert (f"--fail-on {rules[-1]}: " in done.err) == bool(code)


def test_a_trigger_that_is_met_fails_it_if_wanted(tmp_path: Path) -> None:
    words = ["-o", str(tmp_path / "flight"), "--trigger", "max > 1us"]
    assert watch(*words, stream=FILE.read_bytes())[1].code == 0
    assert watch(*words, "--fail-on", "trigger", stream=FILE.read_bytes())[1].code == 1


def test_it_ends_after_its_time() -> None:
    """Standard input stays open, and says nothing more."""
    with subprocess.Popen([*WATCH, "--json", "-", "--for", "1s"], stdin=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(FILE.read_bytes())
        running.stdin.flush()
        assert running.wait(PATIENCE_S) == 0


HOOK = """#!/bin/sh
printf '%s\\n' "$@" > "$(dirname "$1")/hook"
printf '%s\\n' "$GRPCDIAG_CAPTURE" "$GRPCDIAG_REPORT" "$GRPCDIAG_REASON" >> "$(dirname "$1")/hook"
"""


def test_a_moment_has_reports_and_the_hook_gets_their_names(tmp_path: Path) -> None:
    """A name that a shell would obey is a name."""
    out, hook = tmp_path / "a; touch it $(touch it)", tmp_path / "the hook"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    words = ["-o", str(out), "--trigger", "max > 1us", "--exec", f"'{hook}' 'two words'"]
    text = hook.read_text().replace('"$1"', '"$2"')  # behind the hook's own word
    hook.write_text(text)
    intervals, done = watch(*words, stream=FILE.read_bytes())
    assert (done.code, done.err) == (0, "")
    (capture,) = out.glob("*.pcapng")
    page, notes = capture.with_suffix(".html"), capture.with_suffix(".md")
    (reason,) = [text.partition(" packets; ")[2] for one in intervals for text in one["written"]]
    files = [str(capture), str(page), str(notes)]
    assert (out / "hook").read_text().splitlines() == ["two words", *files, *files[:2], reason]
    assert "/lab.v1.Lab/Do" in page.read_text() and "/lab.v1.Lab/Do" in notes.read_text()
    assert {path.stat().st_mode & 0o777 for path in (capture, page, notes)} == {0o600}
    assert not list(tmp_path.rglob("it"))


def test_a_hook_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errands, "HOOK_S", 0.2)
    monkeypatch.setattr(errands, "REPORTS", {})
    mark = str(tmp_path / "sleeps.pcapng")
    doing = errands.Errands(None, ["sh", "-c", 'sh -c "sleep 1000; : $0" "$0"; :'])
    doing.begin(Saved(Path(mark), ("why",), 1))
    assert doing.finish() == ["--exec sh: ended after 0.2 s"]
    assert gone(mark)


def test_reports_of_moments_read_the_key_log(tmp_path: Path) -> None:
    capture, log = tmp_path / "moment.pcap", tmp_path / "run.keys"
    shutil.copy(recorded("tls13-go.pcap"), capture)
    shutil.copy(recorded("tls13-go.keys"), log)
    doing = errands.Errands(None, [], log)
    doing.begin(Saved(capture, ("why",), 1))
    assert doing.finish() == []
    assert "/lab.v1.Lab/Do" in capture.with_suffix(".md").read_text()


class Kept:
    """A recorder that has kept packets."""

    def __init__(self, data: bytes, packets: int) -> None:
        self.data, self.packets = data, packets

    def write_between(self, from_ns: int, to_ns: int, out: IO[bytes]) -> int:
        out.write(self.data)
        return self.packets


def test_the_timeline_of_a_call_is_drawn_from_the_packets_kept() -> None:
    tables = decode([str(FILE)], rpc_rows=True)
    row = int(tables.rpcs.duration_ns.argmax())
    begin, took = int(tables.rpcs.start_time_ns[row]), int(tables.rpcs.duration_ns[row])
    stream = int(tables.rpcs.stream[row])
    call = CallFigures(None, tables.client(0), tables.server(0), stream, begin, took, "OK", False)
    drawn = draw_call(cast(Any, Kept(FILE.read_bytes(), 1)), call, {}, 120)
    assert f"connection 0, stream {stream}" in drawn and f"HEADERS[{stream}]" in drawn
    for kept, one in ((Kept(b"", 0), call), (Kept(FILE.read_bytes(), 1), replace(call, client="10.0.0.9:1"))):
        with pytest.raises(RecordingError, match="no longer kept"):
            draw_call(cast(Any, kept), one, {}, 120)


def test_the_port_of_a_scraper_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f":{taken.getsockname()[1]}"
        _, done = watch("--openmetrics", where, stream=FILE.read_bytes())
    assert done.code == 2
    assert f"127.0.0.1{where}: cannot listen there: Address already in use" in done.err


def test_a_scraper_is_answered_while_it_runs() -> None:
    port = free_port()
    with subprocess.Popen(
        [*WATCH, "--json", "-", "--openmetrics", f":{port}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write(FILE.read_bytes())
        running.stdin.flush()
        metrics = f"http://127.0.0.1:{port}/metrics"

        def has_figures() -> bool:
            with contextlib.suppress(URLError):  # it may not listen yet
                return b"grpcdiag_watch_rpcs_total" in urlopen(metrics).read()
            return False

        wait_until(has_figures)
        with urlopen(metrics) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            families = {one.name: one for one in text_string_to_metric_families(answer.read().decode())}
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"http://127.0.0.1:{port}/")
        running.stdin.close()
        assert running.wait(PATIENCE_S) == 0
    counted, known = Counter[str](), Counter[str]()
    for sample in families["grpcdiag_watch_rpcs"].samples:
        counted[sample.labels["status"]] += sample.value
    for method in totals(FILE)["methods"]:
        known.update(method["statuses"])
    assert counted == +known
    assert {"grpcdiag_watch_in_flight", "grpcdiag_watch_rpc_latency_seconds"} <= families.keys()
    with pytest.raises(URLError):
        urlopen(metrics)


def test_a_sender_that_comes_again_is_followed(tmp_path: Path) -> None:
    """Half of a capture, a break, and the whole: the gap is told, and the packets of both count."""
    data = FILE.read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        keeps = ["-o", str(tmp_path / "flight"), "--keep", "1h", "--trigger", "max > 50s"]
        with subprocess.Popen([*WATCH, "--json", url, *keeps], stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            with server.accept()[0] as first:
                first.sendall(data[: len(data) // 2])
            with server.accept()[0] as second:
                second.sendall(data)
                told, packets = list[str](), 0
                for line in running.stdout:
                    interval = json.loads(line)
                    told += interval["problems"]
                    packets = interval["packets"]
                    if packets > totals(FILE)["capture"]["packets"]:
                        break
                running.send_signal(signal.SIGTERM)
                running.stdout.read()
                assert running.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert [text.partition(":")[0] for text in told] == ["recording ended", "recording goes on"]
    assert interval["ring_bytes"] > 1.4 * len(data)  # the first half is as old as the others, by the stream's clock


@pytest.mark.parametrize("second", [b"", b"GET / HTTP/1.1\r\n\r\n" * 10])
def test_a_later_stream_that_is_no_capture_ends_nothing(second: bytes, tmp_path: Path) -> None:
    """As of a proxy whose sender is away: it goes on, and the moment of the first stream is written."""
    words = ["-o", str(tmp_path / "flight"), "--keep", "1h", "--trigger", "max > 1us"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        url = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with subprocess.Popen([*WATCH, "--json", url, *words], stdout=subprocess.PIPE) as running:
            for data in (FILE.read_bytes(), second, FILE.read_bytes()):
                with server.accept()[0] as connection:
                    connection.sendall(data)
            server.accept()[0].close()
            running.send_signal(signal.SIGTERM)
            assert running.stdout is not None
            intervals = [json.loads(line) for line in running.stdout]
            assert running.wait(PATIENCE_S) == 128 + signal.SIGTERM
    assert intervals[-1]["packets"] == 2 * totals(FILE)["capture"]["packets"]
    assert min(one["time_ns"] for one in intervals) > 1e18
    written = [*(tmp_path / "flight").glob("*.pcapng")]  # the moment of the third stream shares it, or has its own
    assert written and all(totals(file)["totals"]["rpcs"] >= totals(FILE)["totals"]["rpcs"] for file in written)


def test_what_is_no_capture() -> None:
    _, done = watch(stream=b"GET / HTTP/1.1\r\n\r\n" * 10)
    assert done.code == 3
    assert "standard input: " in done.err


WITHOUT_TEXTUAL = "import sys; sys.modules['textual'] = None; from grpcdiag.__main__ import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("program", "shown"),
    [(WATCH, "by method"), ([sys.executable, "-c", WITHOUT_TEXTUAL, "watch"], "no RPCs in the last 60 s")],
)
def test_q_ends_it_and_the_terminal_is_as_before(program: list[str], shown: str) -> None:
    """With the keyboard's library and without it."""
    require_tool("tcpdump")
    try:
        running = tcpdump.Tcpdump(
            tcpdump.arguments(tcpdump.find(), interface="lo", expression="less 1", output="-", buffer_kib=1024)
        )
        running.listen()
        running.stop()
    except RecordingError as error:
        pytest.skip(f"tcpdump may not record here: {error}")
    with Terminal([*program, "-i", "lo", "-p", "1"]) as terminal:
        before = termios.tcgetattr(terminal.leader)
        terminal.read_until(shown)
        assert termios.tcgetattr(terminal.leader) != before
        terminal.type("xq")
        assert terminal.process.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(terminal.leader) == before


def test_hints_come_once_and_only_without_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "list_hints", lambda path, ports, pids: [f"look at {ports}"])
    silent, busy = Hints(None, [1]), Hints(None, [1])
    said = [silent.list(0) for _ in range(20)]
    assert said[AFTER_INTERVALS - 1] == ["no packet matched the filter yet", "look at [1]"]
    assert not any([*said[: AFTER_INTERVALS - 1], *said[AFTER_INTERVALS:]])
    assert not any(busy.list(int(second == 2)) for second in range(20))
