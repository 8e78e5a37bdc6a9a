"""Words and figures of the page that need more than a template."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...analyzer import _core
from ...analyzer.model.analysis import Analysis, ConnectionFacts, MethodFacts
from ...analyzer.model.finding import SEVERITIES, Evidence, Finding
from ...analyzer.model.text import count, duration, safe
from ...analyzer.views.page_data import PageData

MOST_TEXT = 4_000
"""Characters of a text: explanations are shorter, and no name is of use that is longer."""
MOST_NAME = 200
"""Characters of a name out of the capture."""
MOST_FINDINGS = 100
MOST_EVIDENCE = 50
MOST_REMEDIES = 20
MOST_METHODS = 100
MOST_CONNECTIONS = 100
MOST_CHARTS = 8
"""Methods whose distribution is drawn."""
LEAST_DRAWN = 5
"""RPCs from which a distribution is more than its quantiles."""
MOST_DARK = 0.1
"""Share of RPC time without an explanation up to which a capture without findings is called fine."""
SLOWEST = 15
"""RPCs listed as the slowest."""


def clean(text: str, most: int = MOST_TEXT) -> str:
    """Text as it may stand in the page: control and invisible characters escaped, and not too long."""
    cut = text[: most + 1]
    return safe(cut if len(cut) <= most else cut[:most]) + ("…" if len(text) > most else "")


def name(text: str) -> str:
    """A name out of the capture: method, address, file, implementation."""
    return clean(text, MOST_NAME)


def method_name(method: str | None, label: str | None) -> str:
    """A method's name, or what stands for it."""
    return name(method or label or "(not in the capture)")


def ranked(analysis: Analysis) -> list[Finding]:
    """Findings in the order of the page: those that cost first, remarks last."""
    return sorted(analysis.findings, key=_rank)[:MOST_FINDINGS]


def _rank(finding: Finding) -> tuple[bool, int, int, bool]:
    severity = SEVERITIES.index(finding.severity)
    return finding.severity == "info", -(finding.lost_ns or 0), -severity, finding.part_of is not None


def verdict_severity(analysis: Analysis) -> str:
    """Severity of the finding that the verdict speaks of; `open` when much is not explained, else `fine`."""
    found = next((f.severity for f in analysis.findings if f.id == analysis.verdict.finding), None)
    total = sum(analysis.budget.values())
    dark = sum(analysis.budget.get(cause, 0) for cause in ("capture_gap", "unexplained"))
    return found or ("open" if dark > MOST_DARK * total else "fine")


def span(analysis: Analysis) -> str:
    """How long the capture lasts."""
    first, last = analysis.capture.first_time_ns, analysis.capture.last_time_ns
    return duration(last - first) if first is not None and last is not None else "-"


def flaws(analysis: Analysis) -> list[str]:
    """What the capture lacks."""
    quality = analysis.quality
    counts = (
        (analysis.capture.dropped_packets or 0, "packet dropped while capturing", "packets dropped while capturing"),
        (quality.truncated_packets, "packet cut", "packets cut"),
        (quality.missing_bytes, "byte missing", "bytes missing"),
        (quality.undecoded_bytes, "byte not decoded", "bytes not decoded"),
    )
    return [count(number, one, many) for number, one, many in counts if number]


def vantages(analysis: Analysis) -> str:
    """Where the capture was taken."""
    return ", ".join(sorted({connection.vantage for connection in analysis.connections}))


def budget(analysis: Analysis) -> list[dict[str, Any]]:
    """Causes with their time, share, and place in a bar of 100, the largest first."""
    return parts(analysis.ends.budget if analysis.ends else analysis.budget)


def parts(causes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Causes with their time, share, and place in a bar of 100, the largest first."""
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


def method_budget(method: MethodFacts) -> list[dict[str, Any]]:
    """The same for a method."""
    return parts(method.budget)


def percent(share: float) -> str:
    """`12.3 %`; what is not zero is not shown as zero."""
    return "< 0.1 %" if 0 < share < 0.0005 else f"{share * 100:.1f} %"


def seconds(analysis: Analysis, time_ns: int) -> str:
    """Seconds since the capture's first packet, as Wireshark counts them."""
    return relative(time_ns - (analysis.capture.first_time_ns or 0))


def relative(ns: int) -> str:
    """`2.823837 s`."""
    return f"{ns / 1e9:.6f} s"


def cost(finding: Finding) -> str:
    """What a finding costs."""
    if finding.lost_ns is not None and finding.share is not None:
        return f"lost {duration(finding.lost_ns)}, {percent(finding.share)} of RPC time"
    return f"counted in {finding.part_of}" if finding.part_of else "costs packets or risk, not time"


def scope(finding: Finding) -> str:
    """Whom a finding concerns."""
    numbers = [str(number) for number in finding.scope.connections]
    said = [f"connection{'s' if len(numbers) > 1 else ''} {_first(numbers)}"] if numbers else []
    said += [_first([name(method) for method in finding.scope.methods])] if finding.scope.methods else []
    return "; ".join(said)


def _first(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def metrics(finding: Finding) -> Iterator[tuple[str, str]]:
    """Names and figures, a unit in the name taken to the figure."""
    for key, value in finding.metrics.items():
        if key.endswith("_ns") and not isinstance(value, str):
            yield key[:-3].replace("_", " "), duration(value)
        elif isinstance(value, float):
            yield key.replace("_", " "), f"{value:,.4g}"
        else:
            yield key.replace("_", " "), f"{value:,}" if isinstance(value, int) else value


def display_filter(evidence: Sequence[Evidence]) -> str:
    """Wireshark's display filter that leaves the evidence alone."""
    return f"frame.number in {{{', '.join(str(e.packet) for e in evidence[:MOST_EVIDENCE])}}}"


def context_filter(analysis: Analysis, finding: Finding) -> str | None:
    """The filter for all packets of the connection around the evidence; None when it is not about one connection."""
    mine = [c for c in analysis.connections if c.connection in finding.scope.connections]
    if len(finding.scope.connections) != 1 or not mine:
        return None
    numbers = [e.packet for e in finding.evidence[:MOST_EVIDENCE]]
    ends = [_end(mine[0].client), _end(mine[0].server)]
    if None in ends:
        return None
    both = " && ".join(str(end) for end in ends)
    return f"{both} && frame.number >= {max(min(numbers) - 10, 1)} && frame.number <= {max(numbers) + 10}"


def _end(text: str) -> str | None:
    """`ip.addr == 10.0.0.1 && tcp.port == 50051`; None for what is no address and port."""
    address, _, port = text.rpartition(":")
    try:
        ip = ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return None
    return f"ip{'v6' if ip.version == 6 else ''}.addr == {ip} && tcp.port == {int(port)}" if port.isdigit() else None


def statuses(method: MethodFacts) -> str:
    """`OK`, or `OK 12, CANCELLED 1`."""
    several = len(method.statuses) > 1
    return ", ".join(f"{status} {number:,}" if several else status for status, number in method.statuses.items())


def stream(method: MethodFacts) -> str | None:
    """What long RPCs do; None for methods of single calls."""
    if method.messages <= 2 * method.rpcs or not method.messages_per_s:
        return None
    said = f"{method.messages:,} messages, {method.messages_per_s:,.0f} a second, both directions"
    turn = method.turnaround_ns
    return said + (f"; answered after {duration(turn.p50)} (p50), {duration(turn.p99)} (p99)" if turn else "")


def runs(implementation: str | None, inferred: bool) -> str:
    """An implementation, and whether it is inferred."""
    return name(implementation) + (" (inferred)" if inferred else "") if implementation else "not known"


def packets(connection: ConnectionFacts) -> str:
    """How many packets, and how many of them again."""
    again = f" ({connection.retransmitted_packets:,} again)" if connection.retransmitted_packets else ""
    return f"{connection.packets_client + connection.packets_server:,}{again}"


def not_judged(analysis: Analysis) -> list[tuple[str, str]]:
    """Findings that could not be told, those of one reason together."""
    reasons: dict[str, list[str]] = {}
    for skipped in analysis.skipped:
        ids = reasons.setdefault(skipped.reason, [])
        if skipped.id not in ids:
            ids.append(skipped.id)
    return [(", ".join(ids), reason) for reason, ids in reasons.items()]


def distributions(analysis: Analysis, page: PageData) -> list[dict[str, Any]]:
    """Latency distributions of the methods with the most RPC time."""
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
    """The slowest RPCs that are complete."""
    rpcs = page.rpcs
    rows = [row for row in (-rpcs.duration_ns).argsort(kind="stable").tolist() if rpcs.complete[row]][:SLOWEST]
    return [
        {
            "row": row,
            "method": method_name(page.methods[rpcs.method[row]].name, page.methods[rpcs.method[row]].label),
            "connection": int(rpcs.connection[row]),
            "stream": int(rpcs.stream[row]),
            "start": relative(int(rpcs.start_ns[row])),
            "duration": int(rpcs.duration_ns[row]),
            "status": _status(int(rpcs.status[row])),
            "first": int(rpcs.first_packet[row]),
            "last": int(rpcs.last_packet[row]),
            "causes": _causes(rpcs.shares[row].tolist()),
        }
        for row in rows
    ]


def _status(code: int) -> str:
    return _core.STATUSES[code] if code < len(_core.STATUSES) else "not seen"


def _causes(shares: Sequence[int]) -> str:
    largest = sorted(range(len(shares)), key=lambda place: -shares[place])[:2]
    return ", ".join(
        f"{_core.CAUSES[place]} {percent(shares[place] / 1000)}" for place in largest if shares[place] >= 5
    )


_DETAIL = "around the evidence, in the slowest RPCs, and where connections with much RPC time begin"


def left_out(page: PageData) -> list[str]:
    """What of the capture is not drawn; empty when all is."""
    kinds = (
        ("RPCs", len(page.rpcs.stream), page.rpcs_total, "the slowest, failed ones, and an even part of the others"),
        ("waits", len(page.waits.stream), page.waits_total, "the longest"),
        ("connections", len(page.connections), page.connections_total, "those with the most RPCs"),
        ("packets", len(page.packets.packet), page.packets_total, _DETAIL),
        ("frames", len(page.frames.stream), page.frames_total, _DETAIL),
    )
    said = []
    for noun, here, total, which in kinds:
        if here < total and (noun != "packets" or not page.spans.whole):
            said.append(f"{here:,} of {total:,} {noun} ({which})" if here else f"none of {total:,} {noun}")
    return said
