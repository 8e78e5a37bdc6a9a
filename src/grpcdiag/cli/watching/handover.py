"""What the loop hands over to the view with a keyboard, which runs in another thread."""

from __future__ import annotations

import threading

from ...analyzer.live.interval import Interval
from .options import Options
from .screen import Messages


class Handover:
    """The newest interval, and whether the loop has ended."""

    def __init__(self, options: Options) -> None:
        """Nothing was shown yet."""
        self.newest: Interval | None = None
        """The last interval: it is frozen, so the app may read it while the loop makes the next one."""
        self.messages = Messages(quiet=options.quiet)
        self.is_over = threading.Event()
        """The loop has ended."""
        self.source = options.source
