"""Documents of `grpcdiag.analysis/1`, as just written or as saved, as far as comparing needs them.

What versions before wrote is read too: properties that were added later are None.
"""

from __future__ import annotations

import json as standard_json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from ...analyzer.model.finding import Confidence, Severity

Count = Annotated[int, Meta(ge=0)]
"""A number of things, or nanoseconds."""


class DocumentError(Exception):
    """A text is no document of `grpcdiag.analysis/1`; the message says why."""


class Quantiles(Struct, frozen=True):
    """Durations in nanoseconds."""

    p50: Count
    p90: Count
    p99: Count
    p999: Count
    max: Count
    mean: Count


Ends = tuple[Count | None, Count | None]
"""Between which two durations a quantile lies."""


class Method(Struct, frozen=True):
    """A method."""

    method: str | None
    rpcs: Count
    latency_ns: Quantiles | None
    statuses: Mapping[str, Count]
    messages: Count
    turnaround_ns: Quantiles | None
    budget: Mapping[str, Count]
    latency_intervals_ns: Mapping[str, Ends] | None = None
    turnaround_intervals_ns: Mapping[str, Ends] | None = None
    first_start_time_ns: int | None = None
    last_end_time_ns: int | None = None


class Connection(Struct, frozen=True):
    """A connection."""

    protocol: str
    opened_time_ns: int | None
    closed_time_ns: int | None
    min_rtt_ns: Count | None
    vantage: str
    client_implementation: str | None
    server_implementation: str | None
    rpcs: Count
    max_concurrent_rpcs: Count
    packets_client: Count
    packets_server: Count
    retransmitted_packets: Count


class Sent(Struct, frozen=True):
    """What one side sent."""

    packets: Count
    payload_packets: Count
    control_packets: Count
    payload_bytes: Count
    data_frames: Count
    pings: Count
    ping_acks: Count
    window_updates: Count
    settings: Count
    messages: Count
    message_bytes: Count
    message_packets: Count
    busy_intervals_10ms: Count


class Traffic(Struct, frozen=True):
    """What both sides sent."""

    client: Sent
    server: Sent


class Finding(Struct, frozen=True):
    """A finding."""

    id: str
    title: str
    severity: Severity
    confidence: Confidence
    lost_ns: Count | None
    share: float | None
    metrics: Mapping[str, int | float | str]


class Capture(Struct, frozen=True):
    """The capture."""

    packets: Count
    first_time_ns: int | None
    last_time_ns: int | None
    dropped_packets: Count | None


class Quality(Struct, frozen=True):
    """How far it can be trusted."""

    truncated_packets: Count
    missing_bytes: Count
    undecoded_bytes: Count


class Totals(Struct, frozen=True):
    """Counts."""

    connections: Count
    rpcs: Count
    rpcs_begun_before: Count
    rpcs_without_known_end: Count
    messages: Count


class Verdict(Struct, frozen=True):
    """What to do first."""

    text: str


class Saved(Struct, frozen=True):
    """A document."""

    schema: Literal["grpcdiag.analysis/1"]
    version: str
    files: Annotated[tuple[str, ...], Meta(min_length=1)]
    capture: Capture
    quality: Quality
    totals: Totals
    budget: Mapping[str, Count]
    verdict: Verdict
    connections: tuple[Connection, ...]
    methods: tuple[Method, ...]
    findings: tuple[Finding, ...]
    traffic: Traffic | None = None


def of_document(document: Mapping[str, Any]) -> Saved:
    """A document as `json_v1.document` makes it. Raises DocumentError."""
    if document.get("narrowed"):  # its packets are of all RPCs, and its messages of some
        raise DocumentError("it is about a part of a capture's RPCs: save the whole analysis")
    try:
        return msgspec.convert(document, Saved)
    except msgspec.ValidationError as error:
        raise DocumentError(str(error)) from None


def of_text(text: bytes) -> Saved:
    """A document as it was saved. Raises DocumentError."""
    try:
        document = standard_json.loads(text, parse_constant=_refuse, parse_int=_int, parse_float=_float)
    except (ValueError, RecursionError) as error:  # of undecodable bytes too
        raise DocumentError(f"no JSON: {error}") from None
    if not isinstance(document, dict):
        raise DocumentError("no JSON object")
    return of_document(document)


_DIGITS = 30
"""Digits of an integer: sums of the most absurd times need fewer, and sums and products of such integers fit floats."""


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"an integer of {len(digits):,} digits")
    return int(digits)


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:_DIGITS])
