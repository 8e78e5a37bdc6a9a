"""What fails the command, as in a soak test of continuous integration."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyzer.model.analysis import Analysis
from .options import Options


class Gate:
    """Remembers what was met once."""

    def __init__(self, options: Options) -> None:
        """Nothing was met yet."""
        self.met: dict[str, str] = {}
        """Why, by rule: the first time."""
        self._rules = options.gates
        self._fails_on_trigger = options.fails_on_trigger

    def judge(self, analysis: Analysis, met_triggers: Sequence[str]) -> None:
        """Look at an analysis, and at the triggers that it meets."""
        for rule in self._rules:
            if rule.text not in self.met and (why := rule.judge(analysis)):
                self.met[rule.text] = why
        if self._fails_on_trigger and met_triggers:
            self.met.setdefault("trigger", met_triggers[0])
