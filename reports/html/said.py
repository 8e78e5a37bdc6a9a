"""Words and figures of the page that need code, not only a template."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...analyzer import _core
from ...analyzer.model.analysis import Analysis, ConnectionFacts, MethodFacts
from ...analyzer.model.finding import Evidence, Finding, rank_cost
from ...analyzer.model.text import duration, format_number, list_first, safe, utc
from ...analyzer.model.thresholds import HIDDEN_SHARE
from ...analyzer.views.page_data import PageData
from ...analyzer.views.pictures import Picture
from ..shared.quality import find_main, judge_verdict
from ..shared.sentences import describe_cost, name_status

MOST_TEXT = 4_000
"""Most characters of a text; explanations are shorter."""
MOST_NAME = 200
"""Most characters of a name from the capture."""
MOST_FINDINGS = 100
MOST_EVIDENCE = 50
MOST_REMEDIES = 20
MOST_METHODS = 100
MOST_CONNECTIONS = 100
MOST_PROCESSES = 100
MOST_CHARTS = 8
"""Most methods whose distribution is drawn."""
LEAST_DRAWN = 5
"""Fewest RPCs whose latency is drawn; with fewer the tables say as much."""
SLOWEST = 15
"""RPCs listed as the slowest."""


def clean(text: str, most: int = MOST_TEXT) -> str:
    """Escape control and invisible characters in a text, and shorten it."""
    cut = text[: most + 1]
    return safe(cut if len(cut) <= most else cut[:most]) + ("…" if len(text) > most else "")


def name(text: str) -> str:
    """Clean a name from the capture: a method, address, file or implementation."""
    return clean(text, MOST_NAME)


def method_name(method: str | None, label: str | None) -> str:
    """Name a method, or give the label that stands for an unknown name."""
    return name(method or label or "(method not readable)")


def ranked(analysis: Analysis) -> list[Finding]:
    """Sort findings for the page: those that cost time first, those of severity `info` last."""
    return sorted(analysis.findings, key=lambda f: (f.severity == "info", *rank_cost(f)))[:MOST_FINDINGS]


def pictures(analysis: Analysis, page: PageData) -> list[Picture | None]:
    """List the pictures of the findings in the order of `ranked`."""
    drawn = {id(finding): picture for finding, picture in zip(analysis.findings, page.pictures, strict=True)}
    return [drawn[id(finding)] for finding in ranked(analysis)]


def main_number(analysis: Analysis) -> int:
    """Number the verdict's finding as the page does, from 1; 0 for none."""
    found = [number for number, finding in enumerate(ranked(analysis), 1) if finding is find_main(analysis)]
    return found[0] if found else 0


def shows_latency(analysis: Analysis) -> bool:
    """Say whether there are enough RPCs to draw their latency."""
    return bool(analysis.budget) and analysis.totals.rpcs >= LEAST_DRAWN


def covers_all(picture: Picture | None, page: PageData) -> bool:
    """Say whether a picture shows the latency of every call, as the section about latency does."""
    if picture is None or picture.kind != "latency":
        return False
    connections = {connection.connection for connection in page.connections}
    return connections <= set(picture.connections) and {method.name for method in page.methods} <= set(picture.methods)


def verdict_severity(analysis: Analysis) -> str:
    """Give the severity of the verdict; without one `open` if much time is unexplained, otherwise `fine`."""
    total = sum(analysis.budget.values())
    dark = sum(analysis.budget.get(cause, 0) for cause in ("capture_gap", "unexplained"))
    return judge_verdict(analysis) or ("open" if dark > HIDDEN_SHARE * total else "fine")


def parts(causes: Mapping[str, int]) -> list[dict[str, Any]]:
    """List causes with their time, share and place in a bar of width 100, largest first."""
    total = sum(causes.values())
    parts: list[dict[str, Any]] = []
    begin = 0.0
    for cause, ns in sorted(causes.items(), key=lambda item: -item[1]):
        if ns > 0:
            width = 100 * ns / total
            parts.append(
                {"cause": cause, "ns": ns, "share": ns / total, "begin": f"{begin:.3f}", "width": f"{width:.3f}"}
            )
            begin += width
    return parts


def percent(share: float) -> str:
    """Format a share as `12.3 %`; a share above zero is never shown as zero."""
    return "< 0.1 %" if 0 < share < 0.0005 else f"{share * 100:.1f} %"


def seconds(analysis: Analysis, time_ns: int) -> str:
    """Format a time in seconds since the first packet, as Wireshark does, and in UTC."""
    first = analysis.capture.first_time_ns or 0
    return f"{relative(time_ns - first)} ({utc(time_ns, first)})"


def relative(ns: int) -> str:
    """Format nanoseconds as `2.823837 s`."""
    return f"{ns / 1e9:.6f} s"


def cost(finding: Finding) -> str:
    """Say what a finding costs."""
    if finding.lost_ns is not None and finding.share is not None:
        least = ">= " * finding.at_least
        return f"lost {least}{duration(finding.lost_ns)}, {least}{percent(finding.share)} of RPC time"
    return describe_cost(finding)


def scope(finding: Finding) -> str:
    """List the connections and methods of a finding."""
    numbers = [str(number) for number in finding.scope.connections]
    parts = [f"connection{'s' if len(numbers) > 1 else ''} {list_first(numbers, 6)}"] if numbers else []
    parts += [list_first([name(method) for method in finding.scope.methods], 6)] if finding.scope.methods else []
    return "; ".join(parts)


def metrics(finding: Finding) -> Iterator[tuple[str, str]]:
    """List the finding's figures by name; a unit in the name moves to the figure."""
    for key, value in finding.metrics.items():
        if key.endswith("_ns") and not isinstance(value, str):
            yield key[:-3].replace("_", " "), duration(value)
        elif isinstance(value, float) and key.endswith("share"):
            yield key.replace("_", " "), f"{value:.1%}"
        elif isinstance(value, float):
            yield key.replace("_", " "), f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        else:
            yield key.replace("_", " "), f"{value:,}" if isinstance(value, int) else value


def display_filter(evidence: Sequence[Evidence]) -> str:
    """Build the Wireshark display filter for the evidence."""
    return f"frame.number in {{{', '.join(str(e.packet) for e in evidence[:MOST_EVIDENCE])}}}"


def context_filter(analysis: Analysis, finding: Finding) -> str | None:
    """Build the filter for the connection's packets around the evidence; None unless the finding has one connection."""
    found = [c for c in analysis.connections if c.connection in finding.scope.connections]
    if len(finding.scope.connections) != 1 or not found:
        return None
    numbers = [e.packet for e in finding.evidence[:MOST_EVIDENCE]]
    ends = [_filter_end(found[0].client), _filter_end(found[0].server)]
    if None in ends:
        return None
    both = " && ".join(str(end) for end in ends)
    return f"{both} && frame.number >= {max(min(numbers) - 10, 1)} && frame.number <= {max(numbers) + 10}"


def _filter_end(text: str) -> str | None:
    """Build `ip.addr == 10.0.0.1 && tcp.port == 50051`; None if the text is not an address and a port."""
    address, _, port = text.rpartition(":")
    try:
        ip = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return None
    return f"ip{'v6' if ip.version == 6 else ''}.addr == {ip} && tcp.port == {int(port)}" if port.isdigit() else None


def statuses(method: MethodFacts) -> str:
    """Format statuses as `OK`, or `OK 12, CANCELLED 1`."""
    named = ((name_status(status), number) for status, number in method.statuses.items())
    several = len(method.statuses) > 1
    return ", ".join(f"{name} {number:,}" if several else name for name, number in named)


def stream(method: MethodFacts) -> str | None:
    """Describe the messages of long RPCs; None for methods of unary calls."""
    if method.messages <= 2 * method.rpcs or not method.messages_per_s:
        return None
    text = f"{method.messages:,} messages, {format_number(method.messages_per_s)} per second, both directions"
    response = method.turnaround_ns
    if response:
        text += f"; response time {duration(response.p50)} (p50), {duration(response.p99)} (p99)"
    return text


def runs(implementation: str | None, inferred: bool) -> str:
    """Name an implementation, and say whether it is inferred."""
    return name(implementation) + (" (inferred)" if inferred else "") if implementation else "unknown"


def packets(connection: ConnectionFacts) -> str:
    """Count the packets of a connection, and those retransmitted."""
    retransmitted = connection.retransmitted_packets
    number = f"{connection.packets_client + connection.packets_server:,}"
    return number + (f" ({retransmitted:,} retransmitted)" if retransmitted else "")


def distributions(analysis: Analysis, page: PageData) -> list[dict[str, Any]]:
    """List the latency distributions of the methods with the most RPC time."""
    counts = {(method.name, method.label): method for method in page.methods}
    drawn: list[dict[str, Any]] = []
    for method in analysis.methods:
        found = counts.get((method.method, method.label))
        if found and sum(found.counts) >= LEAST_DRAWN and method.latency_ns and len(drawn) < MOST_CHARTS:
            q = method.latency_ns
            drawn.append(
                {
                    "method": method_name(method.method, method.label),
                    "first": found.first_class,
                    "counts": found.counts,
                    "quantiles": [["p50", q.p50], ["p90", q.p90], ["p99", q.p99]],
                }
            )
    return drawn


def slowest(page: PageData) -> list[dict[str, Any]]:
    """List the slowest RPCs; the time of those without a start or an end in the capture is `at least` that long."""
    rpcs, statuses = page.rpcs, dict(enumerate(_core.STATUSES))
    rows = (-rpcs.duration_ns).argsort(kind="stable")[:SLOWEST].tolist()
    return [
        {
            "row": row,
            "method": method_name(page.methods[rpcs.method[row]].name, page.methods[rpcs.method[row]].label),
            "connection": int(rpcs.connection[row]),
            "stream": int(rpcs.stream[row]),
            "start": relative(int(rpcs.start_ns[row])),
            "duration": f"{'' if rpcs.complete[row] else 'at least '}{duration(int(rpcs.duration_ns[row]))}",
            "status": statuses.get(int(rpcs.status[row]), "status unknown"),
            "first": int(rpcs.first_packet[row]),
            "last": int(rpcs.last_packet[row]),
            "causes": _list_causes(rpcs.shares[row].tolist()),
        }
        for row in rows
    ]


def _list_causes(shares: Sequence[int]) -> str:
    largest = sorted(range(len(shares)), key=lambda place: -shares[place])[:2]
    return ", ".join(
        f"{_core.CAUSES[place]} {percent(shares[place] / 1000)}" for place in largest if shares[place] >= 5
    )


_DETAIL = "around the evidence, in the slowest RPCs, and at the start of connections with much RPC time"


def left_out(page: PageData) -> list[str]:
    """List what part of the capture is drawn; empty when everything is."""
    kinds = (
        ("RPCs", len(page.rpcs.stream), page.rpcs_total, "the slowest, the failed, and a uniform sample of the others"),
        ("blocked intervals", len(page.waits.stream), page.waits_total, "the longest"),
        ("intervals of recorded threads", page.acts, page.acts_total, "the longest"),
        ("connections", len(page.connections), page.connections_total, "those with the most RPCs"),
        ("packets", len(page.packets.packet), page.packets_total, _DETAIL),
        ("frames", len(page.frames.stream), page.frames_total, _DETAIL),
    )
    texts = []
    for noun, here, total, which in kinds:
        if here < total and (noun != "packets" or not page.spans.whole):
            texts.append(f"{here:,} of {total:,} {noun} ({which})" if here else f"none of {total:,} {noun}")
    return texts
