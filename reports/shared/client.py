"""Describe what the client measured, beside the RPCs of the capture."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from msgspec.structs import replace
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyzer.model.client import ClientFacts, ClientSource, describe_queue
from ...analyzer.model.text import count, duration, safe

HEADS = ("p50", "p90", "p99", "max")
MOST_SOURCES = 4
"""Files that are named; the rest are counted."""
MOST_QUEUES = 3
"""Queues that are described; the JSON report has all."""
_WORTH = 0.01
"""Share of the calls' time from which a queue is described (heuristic: below, it changes nothing)."""


def parts(client: ClientFacts, width: int) -> list[RenderableType]:
    """List the parts of the section: the times of calls, then sentences."""
    head = Text("what the client measured", style="bold")
    shown: list[RenderableType] = []
    if rows := list_times(client):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column()
        for _ in HEADS:
            table.add_column(justify="right", no_wrap=True)
        table.add_row("time of a call", *HEADS, style="dim")
        for name, cells in rows:
            table.add_row(name, *cells)
        shown.append(table)
    shown += [Text(line) for line in list_sentences(client)]
    return [head, *(Padding(part, (0, 0, 0, 2)) for part in shown)]


def bare_sources(sources: Sequence[ClientSource]) -> tuple[ClientSource, ...]:
    """Remove the folders from names of files: a public report must not show them."""
    return tuple(replace(one, file=PurePath(one.file).name or "record") for one in sources)


def list_times(client: ClientFacts) -> list[tuple[str, tuple[str, ...]]]:
    """List the times of calls with their quantiles."""
    rows = (
        ("measured by the client", client.call_ns),
        ("before its first byte", client.before_wire_ns),
        ("on the wire", client.on_wire_ns),
        ("between attempts (retried calls)", client.between_attempts_ns),
        ("after its last byte", client.after_wire_ns),
    )
    return [(name, tuple(duration(getattr(of, head)) for head in HEADS)) for name, of in rows if of]


def list_sentences(client: ClientFacts) -> Iterator[str]:
    """Say which calls are on the wire, how they were joined, what they waited for, and what is unknown."""
    named = [f"{safe(one.file)} ({one.format}, {count(one.calls, 'call')})" for one in client.sources[:MOST_SOURCES]]
    more = len(client.sources) - len(named)
    yield f"Records: {', '.join(named)}{f' and {more} more' if more else ''}."
    if not client.on_wire:
        yield f"No call of the record fits an RPC of this capture: {count(client.calls, 'call')}, none joined."
    else:
        yield _describe_join(client)
    if client.on_wire and not client.at_client:
        yield "The capture was not taken at the client: the times before and after the wire include a part of the path."
    if client.clock_offset_ns:
        yield _describe_clock(client.clock_offset_ns.least, client.clock_offset_ns.most)
    whole = sum(client.budget.values())
    yield from (f"{describe_queue(one)}." for one in client.queues[:MOST_QUEUES] if one.waiting_ns >= _WORTH * whole)
    if client.never_on_wire:
        statuses = ", ".join(f"{name} {number:,}" for name, number in client.never_on_wire_statuses.items())
        yield f"{count(client.never_on_wire, 'call')} never reached the wire: {statuses}. The client ended them itself."
    if client.on_wire and client.outside_capture:
        calls = count(client.outside_capture, "call")
        yield f"{calls} cannot be judged: their RPCs may be outside the capture, before it, after it or not recorded."
    if client.on_wire and client.rpcs_without_call:
        yield f"{count(client.rpcs_without_call, 'RPC')} of the capture without a measured call."


def _describe_join(client: ClientFacts) -> str:
    how = client.joined
    named = (
        (how.exact, "exactly by traceparent"),
        (how.by_order, "by status and order"),
        (how.ambiguous, "ambiguously, where neighbours fit as well"),
    )
    joined = ", ".join(f"{number:,} {by}" for number, by in named if number)
    rpcs = count(client.attempts, "RPC")
    return f"{client.on_wire:,} of {count(client.calls, 'call')} are on the wire as {rpcs}: joined {joined}."


def _describe_clock(least: int, most: int) -> str:
    if least <= 0 <= most:
        return f"The clocks agree within {duration(max(-least, most))}, as far as the calls show."
    if least > most:
        return f"The clocks drift: their offset changes by {duration(least - most)} or more during the capture."
    middle = (least + most) // 2
    ahead = "ahead of" if middle > 0 else "behind"
    error = duration((most - least + 1) // 2)
    return f"The capture's clock is {duration(abs(middle))} {ahead} the client's; the error is at most {error}."
