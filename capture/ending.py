"""Decide when a recording may end: the connections are closed, and tcpdump has written their last packets.

The kernel gives packets to tcpdump in blocks, when a block is full or a second old. A tcpdump that is stopped
immediately therefore loses the last packets. Its statistics say how many packets the kernel counted and how many were
written.
"""

import time
from collections.abc import Callable, Sequence

from . import sockets
from .tcpdump import Tcpdump

BLOCK_S = 1.3
"""Time after which every packet has reached tcpdump: its read timeout of one second (tcpdump.c), and a margin."""
QUIET_S = 0.15
"""Silence that counts as the end if the kernel says that no connection is open (heuristic without a source)."""
BLIND_QUIET_S = 1.0
"""Silence that counts as the end if sockets are not visible, as in another network namespace (heuristic without a
source)."""
_LOOK_S = 0.05

_CLOSING = ("fin-wait-1", "fin-wait-2", "closing", "last-ack", "close-wait", "syn-sent", "syn-recv")


def closing(ports: Sequence[int]) -> int | None:
    """Count the connections that are being opened or closed; None if ss does not answer."""
    found = sockets.look(ports, *_CLOSING)
    return None if found is None else len(found)


def wait(
    tcpdump: Tcpdump,
    ports: Sequence[int],
    *,
    patience_s: float,
    blind: bool,
    loopback: bool,
    interrupted: Callable[[float], bool],
) -> int:
    """Return when the last packets are in the file, at the latest after `patience_s` and the time of a block.

    Returns the number of connections that were still closing then. `blind`: no socket of these ports was ever seen
    here. `loopback`: the kernel counts each packet twice, out and in.
    """
    start = time.monotonic()
    changed, closed, last = start, None, tcpdump.counts
    open_connections = 0
    while tcpdump.alive and not interrupted(_LOOK_S):
        now = time.monotonic()
        late = now - start > patience_s
        if closed is None:
            found = closing(ports)
            open_connections = found or 0
            if not found or late:
                closed = now
        counts = tcpdump.ask()
        if counts is None:
            continue
        if last is None or counts.received != last.received:
            changed = now
        last = counts
        if closed is None:
            continue
        since = max(closed, min(changed, start + patience_s))
        quiet = BLIND_QUIET_S if blind else QUIET_S
        is_all_written = counts.captured * (2 if loopback else 1) == counts.received - counts.dropped
        if now - since >= (quiet if is_all_written else max(quiet, BLOCK_S)):
            break
    return open_connections
