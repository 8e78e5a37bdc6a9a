"""Say what a proxy did with the calls whose legs are joined: one head and some lines for each proxy."""

from collections.abc import Iterator

from ...analyzer.model.analysis import Analysis, Hop
from ...analyzer.model.text import count, duration


def name_hop(hop: Hop) -> str:
    """Name a proxy, the server behind it, and the calls between them."""
    return f"proxy {hop.proxy} -> {hop.server}: {count(hop.calls, 'call')} on both legs"


def list_lines(analysis: Analysis, hop: Hop) -> Iterator[str]:
    """List how long the proxy held its calls, what else it did, the packets that show it, and what to do."""
    times = (
        (hop.duration_ns, "before the proxy"),
        (hop.behind_ns, "behind it"),
        (hop.held_up_ns, "request held"),
        (hop.held_down_ns, "response held"),
    )
    known = [f"{duration(found.p50)} (p99 {duration(found.p99)}) {where}" for found, where in times if found]
    if known:
        yield f"median: {', '.join(known)}"
    yield hop.text
    first = analysis.capture.first_time_ns or 0
    for item in hop.evidence:
        yield f"#{item.packet}  {(item.time_ns - first) / 1e9:.6f} s  {item.what}"
    for remedy in hop.remedies:
        yield f"{remedy.implementation}: {remedy.knob}: {remedy.note}"


def find_behind(analysis: Analysis) -> set[int]:
    """Find the connections behind proxies, whose RPCs are parts of calls."""
    return {connection for hop in analysis.hops for connection in hop.back}
