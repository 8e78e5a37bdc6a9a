"""The core works in threads of its own: Ctrl-C is raised in the main thread, and must not be in the middle of it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support import recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode import runner

CAPTURE = recorded("impl-go.pcap")


class Watched:
    """A run that notes the threads in which it is asked for anything."""

    asked: list[tuple[str, int]]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        type(self).asked.append(("__init__", threading.get_ident()))
        self._run = _core_run(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._run, name)
        if callable(found):
            type(self).asked.append((name, threading.get_ident()))
        return found


_core_run = _core.Run


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    Watched.asked = []
    monkeypatch.setattr(_core, "Run", Watched)
    return Watched


@pytest.mark.parametrize("rpc_rows", [False, True])
def test_reading_works_elsewhere(watched: type[Watched], rpc_rows: bool) -> None:
    found = runner.Reading([CAPTURE], rpc_rows=rpc_rows).finish()
    assert found["capture"]["packets"] > 0
    assert {"__init__", "step", "finish"} <= {name for name, _ in watched.asked}
    assert threading.get_ident() not in {thread for _, thread in watched.asked}


def test_a_run_works_elsewhere(watched: type[Watched]) -> None:
    run = runner.Run([CAPTURE], messages=True, rpc_rows=True)
    while run.step():
        run.take("messages")
        run.take_rpcs(1, 2)
    run.take("messages")
    run.take_rpcs(0, 0)
    run.finish()
    assert {name for name, _ in watched.asked} >= {"take", "take_rpcs", "finish"}
    assert threading.get_ident() not in {thread for _, thread in watched.asked}


def test_a_thread_beside_the_main_one_needs_no_other(watched: type[Watched]) -> None:
    reading = threading.Thread(target=lambda: runner.Run([CAPTURE]).finish())
    reading.start()
    reading.join()
    assert {thread for name, thread in watched.asked if name in ("__init__", "finish")} == {reading.ident}


def test_what_goes_wrong_is_raised_here(tmp_path: Any) -> None:
    path = tmp_path / "notes.pcap"
    path.write_text("no capture")
    with pytest.raises(_core.CaptureError):
        runner.Reading([str(path)]).finish()
    with pytest.raises(_core.CaptureError):
        runner.Run([str(path)])
