"""Read the parts of `grpcdiag.analysis/1` documents that a comparison needs.

Documents of earlier versions are read too: properties that were added later are None.
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
    """A text is not a document of `grpcdiag.analysis/1`; the message says why."""


class Quantiles(Struct, frozen=True):
    """Durations in nanoseconds."""

    p50: Count
    p90: Count
    p99: Count
    p999: Count
    max: Count
    mean: Count


Ends = tuple[Count | None, Count | None]
"""Ends of a quantile's confidence interval."""


class Method(Struct, frozen=True):
    """Figures of a gRPC method."""

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
    """Figures of a connection."""

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
    """Counts of what one side sent."""

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
    """Counts of what both sides sent."""

    client: Sent
    server: Sent


class Finding(Struct, frozen=True):
    """A finding of the analysis."""

    id: str
    title: str
    severity: Severity
    confidence: Confidence
    lost_ns: Count | None
    share: float | None
    metrics: Mapping[str, int | float | str]


class Capture(Struct, frozen=True):
    """Figures of the capture."""

    packets: Count
    first_time_ns: int | None
    last_time_ns: int | None
    dropped_packets: Count | None


class Quality(Struct, frozen=True):
    """What is missing from the capture."""

    truncated_packets: Count
    missing_bytes: Count
    undecoded_bytes: Count


class Totals(Struct, frozen=True):
    """Totals of the capture."""

    connections: Count
    rpcs: Count
    rpcs_begun_before: Count
    rpcs_without_known_end: Count
    messages: Count


class Verdict(Struct, frozen=True):
    """The verdict of the analysis."""

    text: str


class Saved(Struct, frozen=True):
    """A document of `grpcdiag.analysis/1`."""

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
    """Convert a document of `analysis_json.document`. Raises DocumentError."""
    if document.get("narrowed"):  # it counts the packets of all RPCs, but the messages of selected RPCs only
        raise DocumentError("it covers selected RPCs only: save the analysis of the whole capture")
    try:
        return msgspec.convert(document, Saved)
    except msgspec.ValidationError as error:
        raise DocumentError(str(error)) from None


def of_text(text: bytes) -> Saved:
    """Parse a saved document. Raises DocumentError."""
    try:
        document = standard_json.loads(text, parse_constant=_refuse, parse_int=_parse_int, parse_float=_parse_float)
    except (ValueError, RecursionError) as error:  # also for undecodable bytes
        raise DocumentError(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise DocumentError("not a JSON object")
    return of_document(document)


_DIGITS = 30
"""Most digits of an integer: sums of extreme times need fewer, and products of two such integers fit a float."""


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _parse_int(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"an integer of {len(digits):,} digits")
    return int(digits)


def _parse_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text[:_DIGITS])
