"""What a client measured of its calls, and which RPCs of the capture they are."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from .. import _core
from ..tables.durations import Count
from .quantiles import Quantiles
from .text import count, duration

QUEUE, BACKOFF, DELIVERY = "client_queue", "client_backoff", "client_delivery"
"""Causes of a call's time that no RPC has: before its HEADERS leave, between its attempts, after its last byte."""

_CAUSES = [QUEUE, *_core.CAUSES, BACKOFF, DELIVERY]
CallBudget = Annotated[
    Mapping[str, Annotated[int, Meta(ge=1)]], Meta(extra_json_schema={"propertyNames": {"enum": _CAUSES}})
]
"""Nanoseconds by cause; causes without time are left out."""


class ClientJoined(Struct, frozen=True):
    """How the calls were joined with RPCs."""

    exact: Count
    """By the ids of `traceparent`."""
    by_order: Count
    """By method, status and time, which leave one RPC alone."""
    ambiguous: Count
    """By the same, though other RPCs would fit as well."""


class ClockBounds(Struct, frozen=True):
    """What the capture's clock less the client's is between."""

    least: int
    most: int


class ClientSource(Struct, frozen=True):
    """A file with calls."""

    file: str
    format: str
    calls: Count


class ClientQueue(Struct, frozen=True):
    """Calls that waited in the client for the same connection."""

    connection: Count
    reason: str
    """`max_concurrent_streams`: all streams that the server allows were open; `connection_setup`: the connection had
    sent no HEADERS yet."""
    streams: Count | None
    """Streams that the server allows."""
    calls: Count
    waiting_ns: Count
    """Time that they waited for it, together."""
    longest_ns: Count
    """The longest of these waits."""


class ClientFacts(Struct, frozen=True):
    """The calls that a client measured, divided by what the capture shows of them."""

    calls: Count
    on_wire: Count
    """Calls with an RPC in the capture."""
    never_on_wire: Count
    """Calls that the client ended itself and whose HEADERS it never sent."""
    outside_capture: Count
    """Calls that may have an RPC all the same: before the capture, after it, or answered though no RPC fits; without
    ids also as many as there are RPCs without a call."""
    never_on_wire_statuses: Mapping[str, Count]
    """By name; `unknown` for calls without one."""
    attempts: Count
    """RPCs of the calls on the wire."""
    rpcs_without_call: Count
    """RPCs of the capture that are no measured call's."""
    joined: ClientJoined
    at_client: bool
    """Whether the capture was taken at the client: elsewhere the time before and after the wire has a part of the
    path."""
    clock_offset_ns: ClockBounds | None
    """None when no call is joined, or the records have different clocks."""
    call_ns: Quantiles | None
    """Durations of the calls on the wire as the client measured them."""
    before_wire_ns: Quantiles | None
    """From a call's begin to the first byte of its first HEADERS."""
    on_wire_ns: Quantiles | None
    """From there to the last byte of its last RPC, without the time between attempts."""
    between_attempts_ns: Quantiles | None
    """Of calls with several attempts."""
    after_wire_ns: Quantiles | None
    """From the last byte to the call's end."""
    budget: CallBudget
    """Time of the calls on the wire by cause."""
    queues: tuple[ClientQueue, ...]
    """The longest first."""
    sources: tuple[ClientSource, ...]


def describe_queue(queue: ClientQueue) -> str:
    """Describe calls that waited: `637 calls waited while all 4 streams of connection 0 were open`."""
    times = f"{duration(queue.waiting_ns)} in all, at most {duration(queue.longest_ns)}"
    calls = count(queue.calls, "call")
    if queue.streams is not None:
        streams = count(queue.streams, "stream")
        return f"{calls} waited while all {streams} that connection {queue.connection} allows were open ({times})"
    return f"{calls} waited for connection {queue.connection} to send its first HEADERS ({times})"
