"""One capture of a comparison: its work and its rates, computed from its document."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from string import ascii_uppercase

from msgspec import Struct
from msgspec.structs import replace

from ...analyzer.model.analysis import Analysis, ConnectionFacts, MethodFacts, Quantiles
from ...analyzer.model.budget import unsplit
from ...analyzer.model.finding import Finding
from ...analyzer.model.thresholds import UNARY_MESSAGES


class Run(Struct, frozen=True, dict=True):
    """One capture of a comparison; costly properties are cached."""

    label: str
    """`A`, `B`..., in the order given."""
    analysis: Analysis

    @property
    def rpcs(self) -> int:
        """Count the RPCs."""
        return self.analysis.totals.rpcs

    @property
    def messages(self) -> int:
        """Count the gRPC messages of both directions."""
        return self.analysis.totals.messages

    @property
    def streaming(self) -> bool:
        """Say whether RPCs are streams: then messages measure the work better than RPCs."""
        return self.messages > UNARY_MESSAGES * self.rpcs

    @cached_property
    def span_ns(self) -> int | None:
        """Measure from the start of the first RPC to the end of the last."""
        starts = [m.first_start_time_ns for m in self.analysis.methods if m.first_start_time_ns is not None]
        ends = [m.last_end_time_ns for m in self.analysis.methods if m.last_end_time_ns is not None]
        if not starts or not ends:
            starts, ends = [
                [time] if time is not None else []
                for time in (self.analysis.capture.first_time_ns, self.analysis.capture.last_time_ns)
            ]
        span = max(ends) - min(starts) if starts and ends else 0
        return span if span > 0 else None

    @property
    def rpc_time_ns(self) -> int:
        """Sum the RPC time of all causes."""
        return sum(self.analysis.budget.values())

    @property
    def at_once(self) -> float | None:
        """Compute the mean number of concurrent RPCs."""
        return over(self.rpc_time_ns, self.span_ns)

    @cached_property
    def callers(self) -> int:
        """Give an upper bound of the largest number of concurrent RPCs, from the maxima of the connections."""
        changes: list[tuple[float, int]] = []
        for connection in self.analysis.connections:
            if connection.max_concurrent_rpcs:
                opened, closed = connection.opened_time_ns, connection.closed_time_ns
                changes.append((float("-inf") if opened is None else opened, connection.max_concurrent_rpcs))
                changes.append((float("inf") if closed is None else closed, -connection.max_concurrent_rpcs))
        most = now = 0
        for _, change in sorted(changes):  # at the same time a close (negative) sorts before an open
            now += change
            most = max(most, now)
        return most

    @property
    def connections(self) -> int:
        """Count the connections with RPCs."""
        return sum(1 for connection in self.analysis.connections if connection.rpcs)

    @cached_property
    def packets(self) -> int:
        """Count the packets of connections whose RPCs can be read."""
        return sum(c.packets_client + c.packets_server for c in self._readable)

    @cached_property
    def retransmitted(self) -> int:
        """Count the retransmitted packets of connections whose RPCs can be read."""
        return sum(c.retransmitted_packets for c in self._readable)

    @property
    def _readable(self) -> list[ConnectionFacts]:
        return [c for c in self.analysis.connections if c.protocol in ("http2", "http1")]

    def sent(self, name: str) -> int:
        """Add up a count of `traffic` over both sides."""
        return sum(getattr(side, name) for side in self.analysis.traffic)

    @property
    def per_s(self) -> float | None:
        """Compute the RPCs per second."""
        return over(self.rpcs * 1e9, self.span_ns)

    @property
    def messages_per_s(self) -> float | None:
        """Compute the messages per second of both directions."""
        return over(self.messages * 1e9, self.span_ns)

    @cached_property
    def statuses(self) -> Mapping[str, int]:
        """Count RPCs by status; `not_seen` counts those whose status is not in the capture."""
        counts: Counter[str] = Counter()
        for method in self.analysis.methods:
            counts.update(method.statuses)
        return counts

    @property
    def failed_share(self) -> float | None:
        """Compute the share of RPCs with a status other than OK, among those with a known status."""
        seen = {name: number for name, number in self.statuses.items() if name != "not_seen"}
        return over(sum(seen.values()) - seen.get("OK", 0), sum(seen.values()))

    def finding(self, name: str) -> Finding | None:
        """Find the finding with that id."""
        return self.findings.get(name)

    @cached_property
    def findings(self) -> Mapping[str, Finding]:
        """Index the costliest finding of each id."""
        return {
            finding.id: finding for finding in reversed(self.analysis.findings)
        }  # the first of an id is the costliest

    @cached_property
    def named_methods(self) -> Mapping[str, MethodFacts]:
        """Index the methods whose names are in the capture."""
        return {m.method: m for m in self.analysis.methods if m.method is not None}


def runs(documents: Sequence[Analysis]) -> tuple[Run, ...]:
    """Label captures with letters, in the order given."""
    return tuple(Run(label(number), _unsplit(analysis)) for number, analysis in enumerate(documents))


def _unsplit(analysis: Analysis) -> Analysis:
    """Put causes together that only captures with a process record split."""
    methods = tuple(replace(method, budget=unsplit(method.budget)) for method in analysis.methods)
    return replace(analysis, budget=unsplit(analysis.budget), methods=methods)


def label(number: int) -> str:
    """Give the label of a capture: `A` to `Z`, then `A1`..."""
    turn, letter = divmod(number, len(ascii_uppercase))
    return ascii_uppercase[letter] + (str(turn) if turn else "")


def over(part: float | None, whole: float | None) -> float | None:
    """Divide; None where either number is unknown or the divisor is 0."""
    return None if part is None or not whole else part / whole


def answered(method: MethodFacts) -> tuple[str, Quantiles | None, Mapping[str, tuple[int | None, int | None]] | None]:
    """Give what a caller waits for, with quantiles and intervals: the RPC's duration, or a stream's response time."""
    if method.messages > UNARY_MESSAGES * method.rpcs and method.turnaround_ns is not None:
        return "turnaround", method.turnaround_ns, method.turnaround_intervals_ns
    return "latency", method.latency_ns, method.latency_intervals_ns
