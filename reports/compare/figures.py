"""Compute the figures of captures side by side: work, rates, packets, latency shifts, budgets, findings."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from msgspec import Struct

from ...analyzer.model.budget import CAUSES
from ...analyzer.model.finding import SEVERITIES, Finding
from .run import Run, answered, over

Unit = Literal["", "ns", "B", "/s"]


class Figure(Struct, frozen=True):
    """One figure of each capture."""

    section: str
    """`work`, `rates` or `packets`."""
    name: str
    """The key in JSON."""
    title: str
    unit: Unit
    values: tuple[float | None, ...]

    def ratio(self, number: int) -> float | None:
        """Divide a capture's figure by the first one's; None where the first one's is 0 or unknown."""
        return over(self.values[number], self.values[0])


_FIGURES: tuple[tuple[str, str, str, Unit, Callable[[Run], float | None]], ...] = (
    ("work", "rpcs", "RPCs", "", lambda run: run.rpcs),
    ("work", "messages", "messages", "", lambda run: run.messages),
    ("work", "bytes_per_message", "bytes per message", "B", lambda run: over(run.sent("message_bytes"), run.messages)),
    ("work", "connections", "connections", "", lambda run: run.connections),
    ("work", "callers", "max concurrent RPCs", "", lambda run: run.callers),
    ("work", "span_ns", "first start to last end", "ns", lambda run: run.span_ns),
    ("rates", "rpcs_per_s", "RPCs per second", "/s", lambda run: run.per_s),
    ("rates", "messages_per_s", "messages per second", "/s", lambda run: run.messages_per_s),
    ("rates", "request_messages_per_s", "  requests", "/s", lambda run: _compute_way(run, "request message")),
    ("rates", "response_messages_per_s", "  responses", "/s", lambda run: _compute_way(run, "response message")),
    ("rates", "message_bytes_per_s", "message bytes per second", "/s", lambda run: _compute_rate(run, "message_bytes")),
    ("rates", "rpcs_at_once", "mean concurrent RPCs", "", lambda run: run.at_once),
    ("rates", "failed_share", "share of failed RPCs", "", lambda run: run.failed_share),
    ("packets", "packets_per_message", "packets per message", "", lambda run: over(run.packets, run.messages)),
    ("packets", "data_packets_per_message", "with messages or headers", "", lambda run: part(run, "data")),
    ("packets", "control_packets_per_message", "with only control frames", "", lambda run: part(run, "control")),
    ("packets", "other_packets_per_message", "empty, or retransmitted", "", lambda run: part(run, "other")),
    ("packets", "messages_per_packet", "messages per message packet", "", lambda run: bunched(run)),
    (
        "packets",
        "payload_bytes_per_packet",
        "payload per packet with data",
        "B",
        lambda run: over(run.sent("payload_bytes"), run.sent("payload_packets")),
    ),
    ("packets", "data_frames_per_message", "DATA frames per message", "", lambda run: each(run, "data_frames")),
    ("packets", "pings_per_message", "PINGs per message", "", lambda run: each(run, "pings")),
    ("packets", "ping_acks_per_message", "PING acks per message", "", lambda run: each(run, "ping_acks")),
    (
        "packets",
        "window_updates_per_message",
        "WINDOW_UPDATEs per message",
        "",
        lambda run: each(run, "window_updates"),
    ),
    ("packets", "settings_per_message", "SETTINGS per message", "", lambda run: each(run, "settings")),
    ("packets", "retransmitted_share", "share retransmitted", "", lambda run: over(run.retransmitted, run.packets)),
)


def figures(runs: Sequence[Run]) -> tuple[Figure, ...]:
    """List the figures that at least one capture has."""
    every = (
        Figure(section, name, title, unit, tuple(of(run) for run in runs))
        for section, name, title, unit, of in _FIGURES
    )
    return tuple(figure for figure in every if any(value is not None for value in figure.values))


def packets_of(run: Run, kind: str) -> int:
    """Count packets of a kind: `data` with messages or headers, `control`, or `other`; each packet has one kind."""
    payload, control = run.sent("payload_packets"), run.sent("control_packets")
    return {"data": payload - control, "control": control, "other": run.packets - payload}[kind]


def part(run: Run, kind: str) -> float | None:
    """Count packets of a kind per message."""
    return over(packets_of(run, kind), run.messages)


def bunched(run: Run) -> float | None:
    """Count messages per packet in which at least one message ended."""
    return over(run.messages, run.sent("message_packets"))


def each(run: Run, name: str) -> float | None:
    """Divide a count of `traffic` by the number of messages."""
    return over(run.sent(name), run.messages)


def _compute_rate(run: Run, name: str) -> float | None:
    count = run.sent(name)
    return over(None if count is None else count * 1e9, run.span_ns)


def _compute_way(run: Run, of: str) -> float | None:
    """Compute the messages per second of one direction; None where it only repeats the RPCs per second."""
    return rates([run], of)[0] if run.streaming else None


class Shift(Struct, frozen=True):
    """How a quantile of a method differs from the first capture's."""

    method: str
    kind: str
    """`latency` of RPCs, or `turnaround` (response time) of streams."""
    quantile: str
    run: str
    """Label of the capture."""
    from_ns: int
    to_ns: int
    low_ns: int | None
    """Lower end of the shift's 95 % confidence interval; None where there is no bound."""
    high_ns: int | None
    """Upper end of that interval."""

    @property
    def shift_ns(self) -> int:
        """Subtract the first capture's quantile."""
        return self.to_ns - self.from_ns

    @property
    def ratio(self) -> float | None:
        """Divide by the first capture's quantile."""
        return over(self.to_ns, self.from_ns)

    @property
    def certain(self) -> bool | None:
        """Say whether the shift exceeds what chance allows for one distribution; None where that is unknown."""
        if self.low_ns is not None and self.low_ns > 0:
            return True
        if self.high_ns is not None and self.high_ns < 0:
            return True
        return None if self.low_ns is None or self.high_ns is None else False


QUANTILES = ("p50", "p90", "p99")
"""Quantiles that are compared."""


def shifts(runs: Sequence[Run]) -> tuple[Shift, ...]:
    """List the shifts of the methods that captures share with the first, by RPC time."""
    first = runs[0]
    return tuple(
        shift
        for name in first.named_methods
        for run in runs[1:]
        if name in run.named_methods
        for shift in _compare_quantiles(name, first, run)
    )


def _compare_quantiles(name: str, first: Run, run: Run) -> Iterator[Shift]:
    (kind, before, ends_before), (other, after, ends_after) = (answered(of.named_methods[name]) for of in (first, run))
    if before is None or after is None or kind != other:
        return
    for quantile in QUANTILES:
        old, new = getattr(before, quantile), getattr(after, quantile)
        old_ends = (ends_before or {}).get(quantile, (None, None))
        new_ends = (ends_after or {}).get(quantile, (None, None))
        yield Shift(name, kind, quantile, run.label, old, new, *interval(old, old_ends, new, new_ends))


def interval(
    old: int, old_ends: tuple[int | None, int | None], new: int, new_ends: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    """Compute the interval of a difference from those of both values.

    The method is MOVER (Zou and Donner, Statistics in Medicine 27, 2008). Each end of the result needs one end of each
    value, and is None where one of these is None.
    """
    (old_low, old_high), (new_low, new_high) = old_ends, new_ends
    low = high = None
    if new_low is not None and old_high is not None:
        low = new - old - math.hypot(max(new - new_low, 0), max(old_high - old, 0))
    if new_high is not None and old_low is not None:
        high = new - old + math.hypot(max(new_high - new, 0), max(old - old_low, 0))
    return (None if low is None else math.floor(low), None if high is None else math.ceil(high))


class Spent(Struct, frozen=True):
    """A cause's part of the RPC time in each capture."""

    cause: str
    each_ns: tuple[float, ...]
    """Per RPC, or per message where RPCs are streams."""
    shares: tuple[float, ...]
    """Shares of each capture's RPC time."""


def unit(runs: Sequence[Run]) -> str:
    """Name the unit of work: `RPC`, or `message` where RPCs are streams in any of the captures."""
    return "message" if any(run.streaming for run in runs) else "RPC"


def units(run: Run, of: str) -> int:
    """Count a capture's units of work."""
    traffic = run.analysis.traffic
    counts = {"request message": traffic.client.messages, "response message": traffic.server.messages}
    return {"RPC": run.rpcs, "message": run.messages, **counts}[of]


def rates(runs: Sequence[Run], of: str) -> tuple[float | None, ...]:
    """Compute the units of work per second."""
    return tuple(over(units(run, of) * 1e9, run.span_ns) for run in runs)


APART = 1.1
"""Factor between the changes of both directions from which each is compared for itself (heuristic: repeated runs differ
by some percent)."""


def choose_unit(runs: tuple[Run, Run]) -> str:
    """Choose what a rate counts: messages of one direction where their rate changed more than that of both."""
    whole = unit(runs)
    if whole == "RPC":
        return whole
    changes = {kind: _measure_change(rates(runs, kind)) for kind in (whole, "request message", "response message")}
    most = max(changes, key=lambda kind: changes[kind])
    return most if changes[most] >= changes[whole] + math.log(APART) else whole


def _measure_change(pair: tuple[float | None, ...]) -> float:
    """Measure the factor between two rates as its logarithm, whichever is larger."""
    return abs(math.log(pair[1] / pair[0])) if pair[0] and pair[1] else 0.0


def budgets(runs: Sequence[Run]) -> tuple[Spent, ...]:
    """List the causes of RPC time in any capture, the largest difference from the first capture first."""
    kind = unit(runs)

    def collect(cause: str) -> Spent:
        times = [run.analysis.budget.get(cause, 0) for run in runs]
        return Spent(
            cause,
            tuple(over(ns, units(run, kind)) or 0.0 for ns, run in zip(times, runs, strict=True)),
            tuple(over(ns, run.rpc_time_ns) or 0.0 for ns, run in zip(times, runs, strict=True)),
        )

    found = [collect(cause) for cause in CAUSES if any(run.analysis.budget.get(cause) for run in runs)]
    return tuple(sorted(found, key=lambda one: -max(abs(ns - one.each_ns[0]) for ns in one.each_ns)))


Change = Literal["appears", "vanishes", "grows", "shrinks", "stays"]

GROWN = 1.25
"""Factor of the time lost per RPC from which a finding of the same severity has grown (heuristic: repeated runs differ
by less)."""


class Changed(Struct, frozen=True):
    """How a finding changed from the first capture to another."""

    id: str
    run: str
    change: Change
    before: Finding | None
    after: Finding | None


def weight(finding: Finding | None) -> int:
    """Rank a finding by severity; -1 without a finding."""
    return -1 if finding is None else SEVERITIES.index(finding.severity)


def changes(runs: Sequence[Run]) -> tuple[Changed, ...]:
    """List how findings changed: those that appear or grow first, then by severity."""
    found = [
        Changed(name, run.label, _classify_change(runs[0], run, name), runs[0].finding(name), run.finding(name))
        for run in runs[1:]
        for name in dict.fromkeys(f.id for of in (runs[0], run) for f in of.analysis.findings)
    ]
    order = ("appears", "grows", "vanishes", "shrinks", "stays")
    return tuple(sorted(found, key=lambda c: (order.index(c.change), -max(weight(c.before), weight(c.after)), c.id)))


def _classify_change(first: Run, run: Run, name: str) -> Change:
    before, after = first.finding(name), run.finding(name)
    if before is None:
        return "appears"
    if after is None:
        return "vanishes"
    if weight(before) != weight(after):
        return "grows" if weight(after) > weight(before) else "shrinks"
    lost = [over(f.lost_ns, units(of, unit((first, run)))) for f, of in ((before, first), (after, run))]
    if lost[0] is None or lost[1] is None or lost == [0, 0]:
        return "stays"
    if lost[1] >= GROWN * lost[0]:
        return "grows"
    return "shrinks" if lost[0] >= GROWN * lost[1] else "stays"
