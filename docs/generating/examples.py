"""A real finding for each page: what the terminal shows of it, from a capture in this repository."""

from __future__ import annotations

from pathlib import Path

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.reports import terminal

REPOSITORY = Path(__file__).resolve().parents[2]
SYNTHETIC = "fixtures/synthetic/captures"

CAPTURES = {
    "cancelled": "recorded/lab/cancelled.pcap",
    "capture-quality": "recorded/truncated.pcap",
    "client-idle-gap": "recorded/field-cases/ydb-unary-single-inflight8.pcap.zst",
    "connection-churn": "recorded/lab/connection-churn.pcap",
    "connection-closed-early": "recorded/lab/connection-closed-early.pcap",
    "connection-window-stall": "recorded/lab/connection-window-stall.pcap.gz",
    "deadline-exceeded": "recorded/deadline-exceeded.pcap",
    "delayed-ack-nagle": "recorded/lab/delayed-ack-nagle.pcap",
    "delayed-data": "recorded/lab/delayed-data.pcap",
    "head-of-line-blocking": "recorded/lab/head-of-line-blocking.pcap.gz",
    "header-overhead": "recorded/lab/header-overhead.pcap",
    "initial-congestion-window": "recorded/rtt205-go-14000.pcap",
    "loss-recovery": "recorded/bench/lossy.pcap.gz",
    "max-concurrent-streams": "recorded/max-concurrent-streams.pcap",
    "ping-storm": "recorded/field-cases/ably-staggered-veth.pcap.zst",
    "receive-window-stall": "recorded/lab/receive-window-stall.pcap",
    "request-batching": "recorded/field-cases/ydb-unary-single-inflight8.pcap.zst",
    "rpc-errors": "recorded/rpc-errors.pcap",
    "server-latency": "recorded/max-concurrent-streams-control.pcap",
    "shared-connection": "recorded/field-cases/ydb-unary-single-inflight8.pcap.zst",
    "slow-start-after-idle": "recorded/rtt205-go-16000.pcap",
    "small-packets": "recorded/field-cases/ably-staggered-veth.pcap.zst",
    "stream-window-stall": "recorded/lab/stream-window-stall.pcap",
    "too-many-pings": "recorded/too-many-pings.pcap",
    "window-update-storm": "recorded/lab/window-update-storm.pcap.gz",
}
"""The capture of each finding's example, below fixtures/: a recorded one where one shows it, else a synthetic one."""


def example(finding_id: str) -> list[str]:
    """Lines of Markdown. Raises ValueError when the finding has no capture, or its capture does not show it."""
    if finding_id not in CAPTURES:
        raise ValueError(f"{finding_id}: docs/generating/examples.py names no capture for its example")
    file = f"fixtures/{CAPTURES[finding_id]}"
    analysis = analyze([str(REPOSITORY / file)])
    finding = next((f for f in analysis.findings if f.id == finding_id), None)
    if finding is None:
        raise ValueError(f"{finding_id}: {file} does not show it")
    shown = terminal.one(analysis, finding).rstrip("\n")
    if finding.severity == "info":
        return [_origin(file), *_AT_INFO, "", "```text", shown, "```"]
    return [_origin(file), "", "```console", f"$ grpcdiag analyze {file}", "...", shown, "...", "```"]


_AT_INFO = (
    "The terminal gives a finding of severity `info` one line; this is the whole of it, in the form of graver ones.",
)


def _origin(file: str) -> str:
    if file.startswith(SYNTHETIC):
        return (
            f"Synthetic: `{file}`, whose bytes and times a script made up, since no recorded\n"
            "capture in the repository shows it."
        )
    return f"From `{file}`, [recorded](../../fixtures/recorded/README.md)."
