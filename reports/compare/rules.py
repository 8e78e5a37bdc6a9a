"""The rules of `--fail-on`: what a capture may not do, alone or compared with a baseline."""

import math
import re
from collections.abc import Sequence

from msgspec import Struct

from ...analyzer.model.finding import SEVERITIES
from .figures import QUANTILES

TIMES = ("latency", *QUANTILES)
"""Metrics whose values are durations; `latency` is each of the quantiles."""
METRICS = (*TIMES, "throughput", "packets", "control", "connections", "errors", "finding")
"""What a rule can limit."""

FACTORS = (
    "p99:1.2, p99:1.2+5ms: 1.2 times or more, by at least 5 ms and by more than chance; also p50, p90; latency: each",
    "throughput:1.2: the rate fell by that factor",
    "packets:1.2, control:1.2: packets per message, or those with only control frames, rose by that factor",
    "connections:1.2: their number rose by that factor",
    "errors:0.01: 1% more of the RPCs fail",
)
"""The rules that need a baseline, for error messages."""
LIMITS = (
    "info, warning, critical: a finding is at least that severe; with a baseline: it appears or grows",
    "finding:ID: the same for that finding",
    "p99>50ms, packets>2, control>1, connections>8, errors>0.01, throughput<1000: the figure of each capture alone",
)
"""The rules that need none."""
_RULE = re.compile(r"([a-z0-9]+)([:<>])(.*)", re.DOTALL)
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,9})?", re.ASCII)
_DURATION = re.compile(rf"({_NUMBER.pattern})(ns|us|µs|ms|s)", re.ASCII)
_UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "µs": 1e3, "ns": 1.0}


class RuleError(ValueError):
    """A rule is invalid; the message says why."""


class Rule(Struct, frozen=True):
    """One rule of `--fail-on`."""

    text: str
    """The rule as the user wrote it."""
    metric: str
    sign: str = ":"
    """`:` compares with a baseline; the others need none."""
    limit: float = 0.0
    """Factor, or for `errors` the difference of shares; without a baseline the limit itself, durations in ns."""
    least: float = 0.0
    """Smallest difference that counts, in the metric's unit, durations in ns."""
    finding: str = ""
    """Severity or id of a finding."""

    @property
    def alone(self) -> bool:
        """Say whether the rule can be applied without a baseline."""
        return self.sign != ":" or self.metric == "finding"


def parse(text: str, ids: Sequence[str], *, baseline: bool = True) -> Rule:
    """Parse a rule as typed; `ids` are the ids of all findings. Raises RuleError.

    Without a `baseline` the message of an error lists only the rules that need none.
    """
    if text in SEVERITIES:
        return Rule(text, "finding", finding=text)
    match = _RULE.fullmatch(text.replace(" ", ""))
    if not match or match[1] not in METRICS:
        rules = (*LIMITS, *FACTORS) if baseline else LIMITS
        raise RuleError("\n  ".join((f"{text!r} is not a rule; write one of:", *rules)))
    metric, sign, value = match.groups()
    if metric == "finding" and sign == ":":
        if value not in SEVERITIES and value not in ids:
            raise RuleError(f"{value!r} is neither a severity ({', '.join(SEVERITIES)}) nor the id of a finding")
        return Rule(text, metric, finding=value)
    if sign == ":":
        return _parse_factor(text, metric, value)
    if metric == "finding" or (sign == "<") != (metric == "throughput"):
        raise RuleError(f"{text!r}: write throughput<1000, and > for durations, packets, connections and errors")
    return Rule(text, metric, sign, _parse_value(metric, value))


def _parse_factor(text: str, metric: str, value: str) -> Rule:
    factor, plus, floor = value.partition("+")
    try:
        limit = float(factor)
    except ValueError:
        raise RuleError(f"{factor!r} is not a number") from None
    least = 0.0 if metric == "errors" else 1.0
    if not math.isfinite(limit) or limit < least or (limit == 0 and metric == "errors"):
        raise RuleError(f"{text!r} needs {'a share above 0' if metric == 'errors' else 'a factor of 1 or more'}")
    if plus and metric == "errors":
        raise RuleError(f"{text!r}: errors: is a difference already")
    return Rule(text, metric, ":", limit, _parse_value(metric, floor) if plus else 0.0)


def _parse_value(metric: str, value: str) -> float:
    """Parse a value in the metric's unit: durations need theirs."""
    if metric in TIMES:
        if match := _DURATION.fullmatch(value):
            return float(match[1]) * _UNITS[match[2]]
        raise RuleError(f"{value!r} is not a duration: write 5ms, 250us or 1.5s")
    if not _NUMBER.fullmatch(value):
        raise RuleError(f"{value!r} is not a number")
    return float(value)
