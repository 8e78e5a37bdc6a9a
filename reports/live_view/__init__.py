"""What `grpcdiag watch` shows: a view with a keyboard, a plain screen, or lines of JSON."""

from __future__ import annotations

import msgspec

from ...analyzer.live.interval import Interval
from .columns import CALLS as CALLS
from .columns import CONNECTIONS as CONNECTIONS
from .columns import METHODS as METHODS
from .columns import Column as Column
from .screen import list_findings as list_findings
from .screen import render_screen as render_screen
from .screen import show_head as show_head

MOST_MESSAGES = 5
"""Messages shown, the last ones."""


def render_json(interval: Interval) -> str:
    """Write a line of JSON."""
    return msgspec.json.encode(interval).decode() + "\n"
