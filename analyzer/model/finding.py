"""Results of a detector: a finding with the packets that prove it, or why it cannot tell."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from ..tables.durations import Count
from .text import packet_filter

Severity = Literal["info", "warning", "critical"]
"""Rated by the share of RPC time lost, or by how many times the needed packets were sent."""
Confidence = Literal["low", "medium", "high"]
"""Rated by what the capture can prove from where it was taken."""

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
"""From harmless to severe."""


class Evidence(Struct, frozen=True):
    """A packet that proves a part of a finding."""

    packet: Annotated[int, Meta(ge=1)]
    """Number in the capture, from 1, as in Wireshark."""
    time_ns: int
    """Its time, nanoseconds since the epoch."""
    what: str
    """What it shows."""


class Remedy(Struct, frozen=True, omit_defaults=True):
    """A setting or step that fixes a finding."""

    implementation: str
    """What it belongs to: a gRPC implementation, `linux`, or `application`."""
    knob: str
    """The setting, as one would type it."""
    note: str
    """What it does, and its cost."""
    present: str | None = None
    """The present value of the setting on the recording host, when it belongs to that host and is known."""


class Scope(Struct, frozen=True):
    """What a finding is about."""

    connections: tuple[int, ...]
    """Rows of the connections table."""
    methods: tuple[str, ...]
    """Methods, as far as they are known."""


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that costs time or packets, with its proof."""

    id: str
    """The id of `docs/json.md`."""
    title: str
    """One line."""
    severity: Severity
    """See `Severity`."""
    confidence: Confidence
    """See `Confidence`."""
    scope: Scope
    """What it is about."""
    lost_ns: Count | None = None
    """Time that the RPCs would not have needed, counted once; None when no latency cost was measured."""
    share: float | None = None
    """`lost_ns` as a share of all RPC time."""
    at_least: bool = False
    """Whether more time may be lost than `lost_ns`: the rest is not in the packets."""
    metrics: Mapping[str, int | float | str]
    """Figures, by name with unit."""
    evidence: Annotated[tuple[Evidence, ...], Meta(min_length=1)]
    """The packets that prove it; never empty."""
    display_filter: str = ""
    """The Wireshark display filter that shows these packets."""
    explanation: str
    """What happened, in sentences."""
    remedies: tuple[Remedy, ...]
    """Settings and steps, the best first."""
    references: tuple[str, ...]
    """Where to read on."""
    verdict: str
    """The finding in one sentence: the cost, the cause, and what to do first."""
    part_of: str | None = None
    """The finding that this one is part of, which counts the time; None for none."""

    def __post_init__(self) -> None:
        """Refuse a finding without evidence, and write its display filter."""
        if not self.evidence:
            raise ValueError(f"finding {self.id} has no evidence")
        if (self.lost_ns is None) != (self.share is None):
            raise ValueError(f"finding {self.id} has time lost without its share, or a share without time")
        force_setattr(self, "display_filter", packet_filter(item.packet for item in self.evidence))


def rank_cost(finding: Finding) -> tuple[int, int, bool]:
    """Rank findings by lost time, then by severity; a part of another finding follows it."""
    return -(finding.lost_ns or 0), -SEVERITIES.index(finding.severity), finding.part_of is not None


def sort_findings(findings: Sequence[Finding], verdict: str | None) -> tuple[Finding, ...]:
    """Sort findings as reports list them: the verdict's first, and those of severity `info` last, as they are."""
    main, info = [f for f in findings if f.id == verdict][:1], [f for f in findings if f.severity == "info"]
    grave = sorted((f for f in findings if f.severity != "info"), key=rank_cost)
    return (*main, *(f for f in (*grave, *info) if f not in main))


class Skipped(Struct, frozen=True):
    """A detector's third result: it cannot tell, and why."""

    id: str
    """The finding it looked for."""
    reason: str
    """Why it cannot tell."""
