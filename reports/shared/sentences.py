"""Sentences that stand in several reports: costs, selected RPCs, recorded processes, requests that are no RPCs."""

from collections.abc import Callable, Iterator, Sequence

from ...analyzer.model.analysis import Analysis, Narrowed, OtherRequest
from ...analyzer.model.budget import PARTS
from ...analyzer.model.finding import Finding
from ...analyzer.model.recorded import ProcessFacts
from ...analyzer.model.text import count, duration

MOST_PATHS = 5
"""Pairs of path and HTTP status of other requests shown; the rest are counted."""
THREADS = "what led to the sends, as the scheduler recorded it"
"""The headline of `describe_processes`."""


def describe_content(analysis: Analysis) -> str:
    """Count connections, RPCs and messages; where none can be read, the TLS connections without secrets."""
    totals, unread = analysis.totals, len(analysis.tls.connections) if analysis.tls else 0
    if unread and not totals.connections:
        return f"{count(unread, 'TLS connection')} without secrets"
    return (
        f"{count(totals.connections, 'connection')}, {count(totals.rpcs, 'RPC')}, {count(totals.messages, 'message')}"
    )


def describe_cost(finding: Finding, *, read: bool = True, mark: Callable[[str], str] = str) -> str:
    """Say what a finding costs; `read` says whether the RPCs could be read, `mark` writes another finding's id."""
    if finding.lost_ns is not None and finding.share is not None:
        least = ">= " * finding.at_least
        return f"lost {least}{duration(finding.lost_ns)}, {least}{finding.share:.1%} of RPC time"
    parts = list(_list_costs(finding))
    parts += [f"part of {mark(finding.part_of)}"] if finding.part_of else []
    return ", ".join(parts) or ("no latency cost measured" if read else "cost to the RPCs unknown")


def _list_costs(finding: Finding) -> Iterator[str]:
    from ...analyzer.detectors import ABOUTS  # late: reports of many captures need no detector

    about = ABOUTS.get(finding.id)  # a document may be of a version with other findings
    for cost in about.costs if about else ():
        if isinstance(number := finding.metrics.get(cost.metric), int) and number:
            plural = "retries" if cost.noun == "retry" else None
            yield cost.text.format(
                duration(number) if cost.metric.endswith("_ns") else count(number, cost.noun, plural)
            )


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


def describe_processes(processes: Sequence[ProcessFacts]) -> Iterator[str]:
    """Give a line for each process, with the largest parts first."""
    for one in processes:
        whole = max(one.total_ns, 1)
        parts = sorted(((getattr(one, f"{part}_ns"), part) for part in PARTS), reverse=True)
        said = ", ".join(f"{part.replace('_', ' ')} {ns / whole:.0%}" for ns, part in parts if ns >= 0.005 * whole)
        yield f"{one.side} {one.name} ({one.pid}): {count(one.intervals, 'interval')}, {duration(whole)}: {said}"


def describe_total(analysis: Analysis) -> str:
    """Say how many requests there were: `2 HTTP/2 requests are no RPCs`."""
    number = analysis.totals.other_streams
    return f"{count(number, 'HTTP/2 request')} {'is no RPC' if number == 1 else 'are no RPCs'}"


def name_status(status: str) -> str:
    """Name a status of `MethodFacts.statuses` for readers."""
    return "status unknown" if status == "not_seen" else status


def name_path(request: OtherRequest) -> str:
    """Name the path, which is not escaped here."""
    return request.path or "(path not in the capture)"


def describe_requests(request: OtherRequest) -> str:
    """Describe the requests of one path and status: `HTTP status 200, 12 requests, longest 1.5 ms, first packet 7`."""
    return ", ".join(
        (
            "no response" if request.http_status is None else f"HTTP status {request.http_status}",
            count(request.requests, "request"),
            "no end seen" if request.longest_ns is None else f"longest {duration(request.longest_ns)}",
            f"first packet {request.first_packet:,}",
        )
    )
