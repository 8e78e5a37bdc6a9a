"""Explain each cause of RPC time in one line, for readers who never saw its name."""

from collections.abc import Mapping

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.budget import SIDES
from ...analyzer.model.ends import Ends
from ...analyzer.model.text import duration

MEANINGS = {
    "client": "waits for the client to send; nothing blocked it",
    "server": "waits for the server to send; nothing blocked it",
    "network": "propagation between client and server",
    "network_up": "way to the server, with queues",
    "network_down": "way to the client, with queues",
    "transmission": "bytes being transmitted",
    "congestion_window": "blocked by TCP congestion control",
    "receive_window": "blocked by the TCP receive window",
    "stream_window": "blocked by the HTTP/2 stream window",
    "connection_window": "blocked by the HTTP/2 connection window",
    "loss_recovery": "recovery of lost packets",
    "delayed_ack": "waits for a delayed ACK",
    "head_of_line": "waits behind bytes of other streams",
    "network_queue": "queues on the network path",
    "peer_unreachable": "waits for a peer that answers nothing any more",
    "proxy": "held by a proxy on the way",
    "capture_gap": "packets missing from the capture",
    "unexplained": "cause not visible in this capture",
}
"""One line for each cause."""
_OF_ONE_WAY = ("network_up", "network_down")


def explain_causes(ends: Ends | None) -> Mapping[str, str]:
    """Explain each cause, and say which depend on the assumption of a symmetric path."""
    if ends is None or not ends.symmetry_assumed:
        return MEANINGS
    return MEANINGS | {cause: f"{MEANINGS[cause]}; path assumed symmetric" for cause in _OF_ONE_WAY}


_PARTS = {
    "running": "a thread that led to the send ran",
    "runnable": "ready, while other threads of the command ran",
    "other_processes": "ready, while other processes ran",
    "wake_up": "ready, while its processor woke up",
    "throttled": "ready, but the cgroup's quota was used up",
    "lock": "waits for a contended lock",
    "other_rpc": "waits for packets of another RPC",
    "timer": "waits for a timer",
    "io": "waits for another process or a device",
    "unknown": "not in the record of the scheduler",
}
MEANINGS |= {f"{side}.{part}": f"{side}: {words}" for side in SIDES for part, words in _PARTS.items()}


_WORTH_NAMING = 0.02
"""Share of RPC time from which set-up is shown beside it (heuristic: above the variation of runs)."""


def describe_setup(analysis: Analysis) -> str:
    """Say how long the connections took before their first RPCs, if that is worth naming."""
    if not analysis.setup_ns or analysis.setup_ns < _WORTH_NAMING * sum(analysis.budget.values()):
        return ""
    return f"before the RPCs: {duration(analysis.setup_ns)} of connection set-up, not in this sum"


def name_cause(cause: str) -> str:
    """Name a cause in a few words, for a sentence."""
    words = MEANINGS.get(cause, cause).partition(";")[0]
    return f"time {words}" if words.startswith("blocked") else words
