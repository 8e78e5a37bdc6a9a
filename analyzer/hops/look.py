"""Look for a proxy before a capture is read again to join legs; imports nothing that most captures do not need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from ..decode.runner import DecodeOptions, Progress, Run
from ..summary.hops import find_proxies
from ..tables import Tables, tables_of

if TYPE_CHECKING:
    from .legs import Legs

MOST_RPCS = 1_000_000
"""RPCs of a capture whose legs are joined: each needs some 1 kB of memory for a moment."""
MOST_MESSAGES = 20_000_000
"""Messages of such a capture, 24 bytes each."""
_PEEK = 100_000
"""First packets of a capture in which a table of RPCs looks for a proxy (heuristic: some seconds of a busy one)."""


def explain_unread(tables: Tables, files: Sequence[str]) -> str | None:
    """Say why a capture cannot be read again to join its legs; None when it can."""
    if not all(Path(name).is_file() for name in files):
        return "both legs of calls through a proxy are not joined: the capture is no file that can be read again"
    if tables.rpc_count > MOST_RPCS or tables.message_count > MOST_MESSAGES:
        return (
            f"both legs of calls through a proxy are not joined in captures of more than {MOST_RPCS:,} RPCs or "
            f"{MOST_MESSAGES:,} messages"
        )
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
