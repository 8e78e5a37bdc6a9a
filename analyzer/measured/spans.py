"""Find the spans of any tracing format that are calls of a gRPC client, and the attempts of these calls.

gRPC's own plugins name the span of a call `Sent.<method>` and those of its attempts `Attempt.<method>` (gRFC A72).
Other instrumentation follows the old or the new OpenTelemetry semantic conventions for RPC.
"""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from .record import Call, make_call, parse_method, parse_status

OWN_SCOPE = "grpcdiag"
"""Scope of the spans that `grpcdiag export` writes: an RPC each, found again by its id."""
_PLUGIN_NAME = re.compile(r"(Sent|Attempt)\.(.+)", re.DOTALL)


class Span(Struct):
    """The parts of a span that show whether it is a call."""

    trace: int
    span: int
    parent: int
    name: str
    is_client: bool
    start_ns: int
    duration_ns: int
    attributes: Mapping[str, str]
    """Values as texts."""
    status: str | None = None
    """gRPC status from the span's own status; used if its attributes have none."""
    where: str = ""
    """How error messages name the span."""
    is_own: bool = False
    """Whether `grpcdiag export` wrote it."""


def list_calls(spans: Iterable[Span]) -> list[Call]:
    """Make a call of each client span, with the spans of its attempts; a repeated span counts once."""
    own = {(span.trace, span.span): span for span in spans if _find_kind(span)}
    calls = {key: _make(span) for key, span in own.items() if _find_caller(span, own) is None}
    for key, span in own.items():
        if key not in calls and not span.is_own and (root := _find_root(span, own)) in calls:
            calls[root].attempts.append(span.span)
            calls[root].status = calls[root].status or parse_status(_find_status(span))
    return list(calls.values())


def _find_kind(span: Span) -> str | None:
    """Return `Sent`, `Attempt` or `call` for spans of a gRPC client, and for exported RPCs; None for others."""
    if span.is_own:
        is_whole = "rpc.system.name" in span.attributes and "grpcdiag.begun_before" not in span.attributes
        return "call" if is_whole else None
    if match := _PLUGIN_NAME.fullmatch(span.name):
        return match[1]
    attributes = span.attributes
    system = attributes.get("rpc.system") or attributes.get("rpc.system.name")
    is_grpc = system == "grpc" or "rpc.grpc.status_code" in attributes
    return "call" if span.is_client and is_grpc else None


def _find_method(span: Span) -> str | None:
    if match := _PLUGIN_NAME.fullmatch(span.name):
        return match[2]
    method, service = span.attributes.get("rpc.method"), span.attributes.get("rpc.service")
    return f"{service}/{method}" if service and method and "/" not in method else method or span.name


def _find_status(span: Span) -> str | None:
    named = span.attributes.get("rpc.grpc.status_code") or span.attributes.get("rpc.response.status_code")
    return named or span.attributes.get("grpc.status") or span.status


def _make(span: Span) -> Call:
    call = make_call(span.start_ns, span.duration_ns, span.where, _find_method(span), _find_status(span))
    call.trace, call.span, call.is_exported = span.trace, span.span, span.is_own
    return call


def _find_caller(span: Span, own: Mapping[tuple[int, int], Span]) -> Span | None:
    """Find the parent span if it is of the same call, so that `span` is an attempt; None otherwise."""
    parent = own.get((span.trace, span.parent)) if span.parent else None
    same = parent is not None and parse_method(_find_method(parent)) == parse_method(_find_method(span))
    return parent if same else None


def _find_root(span: Span, own: Mapping[tuple[int, int], Span]) -> tuple[int, int]:
    for _ in range(_DEEPEST):
        caller = _find_caller(span, own)
        if caller is None:
            break
        span = caller
    return span.trace, span.span


_DEEPEST = 8
"""Most nested spans of one call (heuristic: a call, its attempts, interceptors); ids may form a circle."""
