"""Describe which RPCs of a capture a report is about."""

from ...analyzer.model.analysis import Narrowed
from ...analyzer.model.text import count


def describe_selection(narrowed: Narrowed) -> str:
    """Describe the selected RPCs: `2 of 5 RPCs (40.0% of RPC time), on connection 3, starting from 2 s`.

    The pattern of methods is the user's own text.
    """
    asked = []
    if narrowed.connections:
        numbers = ", ".join(map(str, narrowed.connections))
        asked.append(f"on connection{'s' * (len(narrowed.connections) > 1)} {numbers}")
    if narrowed.method is not None:
        asked.append(f"of methods that match {narrowed.method}")
    if narrowed.trace_id is not None:
        asked.append(f"of trace {narrowed.trace_id}")
    ends = (("from", narrowed.from_ns), ("to", narrowed.to_ns))
    times = [f"{word} {ns / 1e9:.9g} s" for word, ns in ends if ns is not None]
    asked += [f"starting {' '.join(times)}"] if times else []
    share = narrowed.rpc_time_ns / narrowed.of_rpc_time_ns if narrowed.of_rpc_time_ns else 1.0
    return f"{narrowed.rpcs:,} of {count(narrowed.of_rpcs, 'RPC')} ({share:.1%} of RPC time), {', '.join(asked)}"
