"""What is done with a capture of the flight recorder once it is written: its reports, then the user's hook.

One process at a time, in a thread of its own: whatever they do, the recorder goes on.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...analyzer.model.text import safe
from ...capture.command import identity
from ...capture.moments import Saved
from ...capture.tcpdump import start_deaf

REPORT_S, HOOK_S = 300.0, 60.0
"""Longest time of a report, and of the hook (heuristic: a hook sends a message or copies a file)."""
END_S = 20.0
"""Longest time for all of them when the command ends."""
MOST_WAITING = 20
"""Captures that wait for their turn; those beyond get neither."""
REPORTS = {"html": ".html", "markdown": ".md"}
"""Formats of the reports, and how their files end."""


class Errands:
    """Makes reports and runs the hook for one capture after the other."""

    def __init__(self, user: pwd.struct_passwd | None, hook: Sequence[str], key_file: Path | None = None) -> None:
        """Programs run as `user`; the words of the hook are followed by the files. Reports read `key_file`, too."""
        self._secrets = ["--keylog", str(key_file.absolute())] if key_file else []
        self._identity = identity(user)
        self._hook = list(hook)
        self._waiting: queue.Queue[Saved | None] = queue.Queue(MOST_WAITING)
        self._news: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._running: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._is_over = False

    def begin(self, saved: Saved) -> None:
        """Make the reports of a capture, and run the hook, after those of earlier ones."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="grpcdiag-errands", daemon=True)
            start_deaf(self._thread)
        try:
            self._waiting.put_nowait(saved)
        except queue.Full:
            self._news.put(f"{saved.path}: no report and no hook: {MOST_WAITING} captures wait for theirs")

    def take_news(self) -> list[str]:
        """Take what has gone wrong since the last call."""
        news = []
        with contextlib.suppress(queue.Empty):
            while True:
                news.append(self._news.get_nowait())
        return news

    def _work(self) -> None:
        while saved := self._waiting.get():
            files = [str(saved.path.absolute()), *self._report(saved.path.absolute())]
            if self._hook:
                told = {
                    "GRPCDIAG_CAPTURE": files[0],
                    "GRPCDIAG_REPORT": files[1] if len(files) > 1 else "",
                    "GRPCDIAG_REASON": "\n".join(map(safe, saved.reasons)),
                }
                self._run("--exec", [*self._hook, *files], HOOK_S, told)

    def _report(self, capture: Path) -> list[str]:
        """Write the reports next to a capture, and list those that were written."""
        written = []
        for form, suffix in REPORTS.items():
            path = str(capture.with_suffix(suffix))
            words = ["analyze", "--quiet", "--format", form, *self._secrets, "-o", path, str(capture)]
            # -P: nothing is imported from the folder in which it runs
            if self._run("report", [sys.executable, "-P", "-m", "grpcdiag", *words], REPORT_S, {}):
                written.append(path)
        return written

    def _run(self, name: str, words: Sequence[str], patience_s: float, variables: Mapping[str, str]) -> bool:
        """Run a program to its end, or end it and its children; say what went wrong."""
        if self._is_over:
            return False
        options = dict(self._identity)
        nice = [path, "-n", "10"] if (path := shutil.which("nice")) else []
        try:
            options["env"] = {**options.get("env", os.environ), **variables}
            running: subprocess.Popen[bytes] = subprocess.Popen(
                [*nice, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the recorder, and a program that hangs ends with its children
                cwd="/",
                umask=0o077,
                **options,
            )
            self._running = running
            code = running.wait(patience_s)
        except OSError as error:
            self._news.put(f"{name} {words[0]}: {error.strerror}")
            return False
        except subprocess.TimeoutExpired:
            self._news.put(f"{name} {words[0]}: ended after {patience_s:g} s")
            self._kill()
            return False
        if code:
            self._news.put(f"{name} {' '.join(words[:2])}: exit code {code}")
        return code == 0

    def _kill(self) -> None:
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()

    def finish(self) -> list[str]:
        """Wait until all is done, but not for longer than `END_S`; give what has gone wrong."""
        if self._thread is not None:
            until = time.monotonic() + END_S
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=END_S)
            self._thread.join(max(until - time.monotonic(), 0))
            if self._thread.is_alive():
                self._is_over = True
                self._news.put(f"reports or hooks were not finished {END_S:g} s after the end")
                self._kill()
        return self.take_news()
