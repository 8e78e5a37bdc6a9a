"""Read the kernel's data on TCP sockets with `ss -tin`, once or periodically."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from . import tools
from .filters import address
from .tcpdump import start_deaf

MOST_BYTES = 64_000_000
"""Largest file of samples: the interval doubles each time half of the remaining size is used."""
MOST_SOCKETS = 256
"""Most sockets in one sample; the rest are counted."""

_WORDS = re.compile(r"(?<![\w:])([a-z_]+):(\S+)")
_CONGESTION = re.compile(
    r"\b(reno|cubic|bbr[23]?|bic|westwood|htcp|hybla|vegas|nv|scalable|lp|veno|yeah|illinois|dctcp|cdg|prague)\b(?!:)"
)
_SPEED = re.compile(r"\b(send|pacing_rate|delivery_rate) (\d+)bps")
_STATES = re.compile("ESTAB|SYN-SENT|SYN-RECV|FIN-WAIT-1|FIN-WAIT-2|TIME-WAIT|CLOSE-WAIT|LAST-ACK|CLOSING")
_INTEGERS: tuple[str, ...] = ("cwnd", "ssthresh", "mss", "pmtu", "unacked", "lost", "sacked")
_INTEGERS += ("bytes_sent", "bytes_acked", "bytes_received", "notsent", "delivered")


def selection(ports: Sequence[int]) -> list[str]:
    """Build ss's arguments for sockets with these ports at either end; all sockets without ports."""
    terms = [f"{end} = :{port}" for port in ports for end in ("sport", "dport")]
    return [f"( {' or '.join(terms)} )"] if terms else []


def look(ports: Sequence[int], *states: str) -> list[dict[str, Any]] | None:
    """List the TCP sockets of this network namespace; None if ss does not answer."""
    chosen = [word for state in states for word in ("state", state)]
    text = output_of_ss("-tinH", *chosen, *selection(ports))
    return None if text is None else list(parse(text))


def output_of_ss(*arguments: str) -> str | None:
    """Run ss; tests replace this function."""
    return tools.output("ss", *arguments, timeout_s=2.0)


def parse(text: str) -> Iterator[dict[str, Any]]:
    """Parse the output of `ss -tinH`: a line per socket, followed by an indented line with the kernel's data."""
    head: list[str] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if not line[0].isspace():
            if head:
                yield _parse_socket(head, "")
            head = line.split()
        elif head:
            yield _parse_socket(head, line)
            head = []
    if head:
        yield _parse_socket(head, "")


def _parse_socket(head: list[str], info: str) -> dict[str, Any]:
    """Parse one socket; names are ss's, with units added."""
    state = head[0] if _STATES.fullmatch(head[0]) else None
    ends = head[3:5] if state else head[2:4]  # ss omits the column if one state is selected
    found: dict[str, Any] = {"local": end(ends[0]) if ends else None, "peer": end(ends[1]) if len(ends) > 1 else None}
    found["state"] = state
    info = " ".join([*head[5 if state else 4 :], info])
    words = dict(_WORDS.findall(info))
    found |= {name: int(words[name]) for name in _INTEGERS if words.get(name, "").isdigit()}
    for word, names in (("rtt", ("rtt_us", "rttvar_us")), ("minrtt", ("min_rtt_us",)), ("rto", ("rto_us",))):
        for name, value in zip(names, words.get(word, "").split("/"), strict=False):
            if re.fullmatch(r"\d+(\.\d+)?", value):
                found[name] = round(float(value) * 1000)
    if match := re.fullmatch(r"(\d+)/(\d+)", words.get("retrans", "")):
        found["retrans"], found["retrans_total"] = int(match[1]), int(match[2])
    found |= {f"{name}_bps": int(value) for name, value in _SPEED.findall(info)}
    if congestion := _CONGESTION.search(info):
        found["congestion_control"] = congestion[1]
    if "cwnd" in found:
        found["app_limited"] = "app_limited" in info.split()
    return found


def end(text: str) -> str | None:
    """Format `address:port` as in the capture: without a zone, and IPv4-mapped IPv6 addresses as IPv4."""
    host, _, port = text.rpartition(":")
    ip = address(host.strip("[]").removeprefix("::ffff:")) or address(host.strip("[]"))
    if ip is None:
        return None
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


class Sampler:
    """Samples sockets periodically and writes a line of JSON for each sample, until it is stopped."""

    def __init__(self, descriptor: int, ports: Sequence[int], every_s: float, most_bytes: int = MOST_BYTES) -> None:
        """Begin to write to an open file, which the caller closes."""
        self.samples = 0
        self.cost_s = 0.0
        self.every_s = every_s
        self.error: str | None = None
        self.sockets_seen = False
        self._file = descriptor
        self._ports = ports
        self._left = most_bytes
        self._next_halving = most_bytes // 2
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="grpcdiag-ss", daemon=True)
        start_deaf(self._thread)

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._ended.is_set():
                self._sample()
                due = max(due + self.every_s, time.monotonic())
                self._ended.wait(due - time.monotonic())
        except OSError as error:
            self.error = f"samples of sockets end early: {error.strerror}"

    def _sample(self) -> None:
        start = time.time_ns()
        sockets = look(self._ports)
        end_ns = time.time_ns()
        self.cost_s += (end_ns - start) / 1e9
        if sockets is None:
            return
        self.sockets_seen |= bool(sockets)
        row: dict[str, Any] = {"from_ns": start, "to_ns": end_ns, "sockets": sockets[:MOST_SOCKETS]}
        if len(sockets) > MOST_SOCKETS:
            row["left_out"] = len(sockets) - MOST_SOCKETS
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        if len(line) > self._left:
            return
        self._write(line)
        self.samples += 1
        self._left -= len(line)
        if self._left < self._next_halving:
            self._next_halving //= 2
            self.every_s *= 2

    def _write(self, line: bytes) -> None:
        """Write a complete line or nothing. Raises OSError."""
        start = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError:
            os.ftruncate(self._file, start)
            raise

    def stop(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self._thread.join(3.0)
