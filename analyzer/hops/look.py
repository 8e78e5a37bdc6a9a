"""Look for a proxy before a capture is read again to join legs; imports only what all captures need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from ..decode.runner import DecodeOptions, Progress, Run
from ..summary.hops import find_proxies
from ..tables import Ints, Tables, tables_of

if TYPE_CHECKING:
    from .legs import Legs

MOST_RPCS = 1_000_000
"""Most RPCs of a capture whose legs are joined: each needs some 1 kB of memory meanwhile."""
MOST_MESSAGES = 20_000_000
"""Most messages of such a capture: each needs 24 bytes of memory."""
_PEEK = 100_000
"""First packets in which `find_legs` looks for a proxy (heuristic: some seconds of a busy capture)."""

_NOT_JOINED = "both legs of calls through a proxy or a NAT are not joined"


def explain_unread(tables: Tables, files: Sequence[str]) -> str | None:
    """Say why the legs of a capture cannot be joined; None if they can."""
    if not all(Path(name).is_file() for name in files):
        return f"{_NOT_JOINED}: the capture is not a file that can be read again"
    if tables.rpc_count > MOST_RPCS or tables.message_count > MOST_MESSAGES:
        return f"{_NOT_JOINED} in captures of more than {MOST_RPCS:,} RPCs or {MOST_MESSAGES:,} messages"
    return None


def find_legs(files: Sequence[str], progress: Progress | None = None, **how: Unpack[DecodeOptions]) -> Legs | None:
    """Look for a proxy in the first packets of a capture, and join its legs; None when there is none.

    Raises CaptureError.
    """
    if not all(Path(name).is_file() for name in files):
        return None
    run = Run(files, **how)
    run.step(_PEEK)
    tables = tables_of(run.finish())
    proxies = find_proxies(tables)
    if not proxies or explain_unread(tables, files):
        return None
    from .legs import read_legs

    return read_legs(files, proxies, progress, **how)


def find_fronts(tables: Tables) -> Ints:
    """Find for each RPC behind a proxy a connection to that proxy, -1 for others; `tables` need a row per RPC."""
    fronts = np.full(len(tables.rpcs.connection), -1, dtype=np.int64)
    proxies = find_proxies(tables)
    if proxies and not explain_unread(tables, ()):
        from .legs import join_rpcs

        parent = join_rpcs(tables, proxies).parent
        fronts[parent >= 0] = tables.rpcs.connection[parent[parent >= 0]]
    return fronts
