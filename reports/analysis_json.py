"""Write the JSON of `analyze`, schema `grpcdiag.analysis/1`.

The structures are written out here, separately from the internal ones, so that those can change without breaking users.
"""

from __future__ import annotations

import json as standard_json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import json
from msgspec.structs import replace

from ..analyzer import _core
from ..analyzer.model.analysis import (
    Analysis,
    ConnectionFacts,
    Ends,
    Interval,
    MethodFacts,
    Narrowed,
    Quantiles,
    RecordingFacts,
    Traffic,
    Way,
)
from ..analyzer.model.finding import Finding, Remedy
from ..analyzer.model.tls import KEY_LOGS, RecordFacts, Silences, TlsFacts
from .shared.text import packet_filter

SCHEMA = "grpcdiag.analysis/1"
"""Name and version of the structure."""


def render(analysis: Analysis) -> str:
    """Render the analysis as one JSON document with a final newline."""
    return "".join(pieces(analysis))


def pieces(analysis: Analysis) -> Iterator[str]:
    """Render the document piece by piece: a capture may have very many connections."""
    if not analysis.connections:
        yield encoded(document(analysis))
        return
    found = document(replace(analysis, connections=()))
    between = "{"
    for name, value in found.items():
        yield f"{between}\n"
        if name == "connections":
            yield '  "connections": [\n'
            yield from _render_connections(analysis.connections)
            yield "\n  ]"
        else:
            yield _dump({name: value})[2:-2]  # without its braces
        between = ","
    yield "\n}\n"


def _render_connections(connections: Sequence[ConnectionFacts]) -> Iterator[str]:
    """Render connections as the items of a list two levels deep."""
    for begin in range(0, len(connections), _AT_ONCE):
        some = _dump([_describe_connection(one) for one in connections[begin : begin + _AT_ONCE]])
        text = some[1:-2].replace("\n", "\n  ")  # without its brackets; a line break is never in a string
        yield text[1:] if begin == 0 else f",{text}"


_AT_ONCE = 1_000
"""Connections whose text is in memory at once."""


def encoded(found: dict[str, Any]) -> str:
    """Encode a document as ASCII JSON with a final newline."""
    return _dump(found) + "\n"


def _dump(found: dict[str, Any] | list[dict[str, Any]]) -> str:
    try:
        text = json.format(json.encode(found), indent=2).decode()
    except OverflowError:  # sums of extreme times need more than 64 bits, which only the slower library can write
        text = standard_json.dumps(found, indent=2)
    return text if text.isascii() else _NOT_ASCII.sub(_escape, text)


_NOT_ASCII = re.compile("[^\0-\x7f]")


def _escape(character: re.Match[str]) -> str:
    """Escape a character for JSON (RFC 8259 section 7), because the encoding of the output is unknown."""
    units = character[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def schema() -> dict[str, Any]:
    """Read the published JSON Schema of the document."""
    return read_schema("analysis-1.json")


def read_schema(name: str) -> dict[str, Any]:
    """Read one of the published schemas."""
    from importlib import resources  # imported only here: the import takes longer than the analysis of a small capture

    text = resources.files("grpcdiag.reports").joinpath(f"schema/{name}").read_text(encoding="utf-8")
    parsed: dict[str, Any] = standard_json.loads(text)
    return parsed


def document(analysis: Analysis) -> dict[str, Any]:
    """Build the document of dictionaries and lists."""
    capture, quality, totals = analysis.capture, analysis.quality, analysis.totals
    apart = analysis.apart and {
        "reason": analysis.apart.reason,
        "analyses": [document(other) for other in analysis.apart.others],
    }
    return {
        "schema": SCHEMA,
        "version": _core.__version__,
        "files": list(analysis.files),
        "capture": {
            "packets": capture.packets,
            "bytes": capture.bytes,
            "first_time_ns": capture.first_time_ns,
            "last_time_ns": capture.last_time_ns,
            "link_types": list(capture.link_types),
            "snaplen": capture.snaplen,
            "dropped_packets": capture.dropped_packets,
        },
        "quality": {
            "truncated_packets": quality.truncated_packets,
            "missing_bytes": quality.missing_bytes,
            "undecoded_bytes": quality.undecoded_bytes,
            "warnings": list(quality.warnings),
        },
        "totals": {
            "connections": totals.connections,
            "rpcs": totals.rpcs,
            "rpcs_begun_before": totals.rpcs_begun_before,
            "rpcs_without_known_end": totals.rpcs_without_known_end,
            "frames": dict(totals.frames),
            "messages": totals.messages,
            "other_streams": totals.other_streams,
        },
        "traffic": {
            name: _describe_traffic(sent) for name, sent in zip(("client", "server"), analysis.traffic, strict=True)
        },
        "budget": dict(analysis.budget),
        "verdict": {"text": analysis.verdict.text, "finding": analysis.verdict.finding},
        "connections": [_describe_connection(connection) for connection in analysis.connections],
        "methods": [_describe_method(method) for method in analysis.methods],
        "findings": [_describe_finding(finding) for finding in analysis.findings],
        "skipped": [{"id": skipped.id, "reason": skipped.reason} for skipped in analysis.skipped],
        "recording": _describe_recording(analysis.recording),
        **({"tls": _describe_tls(analysis.tls)} if analysis.tls else {}),
        **({"narrowed": _describe_narrowed(analysis.narrowed)} if analysis.narrowed else {}),
        **({"ends": _describe_ends(analysis.ends)} if analysis.ends else {}),
        **({"apart": apart} if apart else {}),
    }


def _describe_recording(r: RecordingFacts | None) -> dict[str, Any] | None:
    if r is None:
        return None
    return {
        "file": r.file,
        "host": r.host,
        "kernel": r.kernel,
        "samples": r.samples,
        "waits_measured": r.waits_measured,
        "window_samples": r.window_samples,
        "window_samples_near_estimate": r.window_samples_near_estimate,
    }


def _describe_tls(connections: Sequence[TlsFacts]) -> dict[str, Any]:
    return {
        "connections": [_describe_tls_connection(one) for one in connections],
        "key_logs": [{"implementation": implementation, "how": how} for implementation, how in KEY_LOGS],
    }


def _describe_tls_connection(one: TlsFacts) -> dict[str, Any]:
    return {
        "connection": one.connection,
        "version": one.version,
        "cipher_suite": one.cipher_suite,
        "offers_h2": one.offers_h2,
        "h2": one.h2,
        "resumed": one.resumed,
        "retried": one.retried,
        "handshake_ns": one.handshake_ns,
        "server_hello_ns": one.server_hello_ns,
        "hello_packet": one.hello_packet,
        "finished_packet": one.finished_packet,
        "client": _describe_records(one.client),
        "server": _describe_records(one.server),
        "blocked": {cause: {"waits": b.waits, "total_ns": b.total_ns} for cause, b in one.blocked.items()},
    }


def _describe_records(side: RecordFacts) -> dict[str, Any]:
    return {
        "records": side.records,
        "bytes": side.bytes,
        "longest_bytes": side.longest_bytes,
        "answers": _describe_silences(side.answers),
        "pauses": _describe_silences(side.pauses),
    }


def _describe_silences(silences: Silences | None) -> dict[str, int] | None:
    if silences is None:
        return None
    return {
        "count": silences.count,
        "total_ns": silences.total_ns,
        "longest_ns": silences.longest_ns,
        "longest_time_ns": silences.longest_time_ns,
        "from_packet": silences.from_packet,
        "to_packet": silences.to_packet,
    }


def _describe_narrowed(n: Narrowed) -> dict[str, Any]:
    return {
        "connections": None if n.connections is None else list(n.connections),
        "method": n.method,
        "from_ns": n.from_ns,
        "to_ns": n.to_ns,
        "rpcs": n.rpcs,
        "of_rpcs": n.of_rpcs,
        "rpc_time_ns": n.rpc_time_ns,
        "of_rpc_time_ns": n.of_rpc_time_ns,
        "connections_in_part": list(n.connections_in_part),
    }


def _describe_ends(ends: Ends) -> dict[str, Any]:
    clock = ends.clock
    return {
        "client": {"files": list(ends.client_files), "other_connections": ends.only_client_connections},
        "server": {"files": list(ends.server_files), "other_connections": ends.only_server_connections},
        "clock": {
            "since_time_ns": clock.since_ns,
            "offset_ns": clock.offset_ns,
            "uncertainty_ns": clock.uncertainty_ns,
            "drift_ppb": clock.drift_ppb,
            "drift_low_ppb": clock.drift_low_ppb,
            "drift_high_ppb": clock.drift_high_ppb,
        },
        "matched_packets": ends.matched_packets,
        "up": _describe_way(ends.up),
        "down": _describe_way(ends.down),
        "budget": dict(ends.budget),
        "methods": [
            {
                "method": m.method,
                "label": m.label,
                "rpcs": m.rpcs,
                "divided_rpcs": m.divided_rpcs,
                "budget": dict(m.budget),
            }
            for m in ends.methods
        ],
        "connections": [
            {
                "connection": c.connection,
                "server_connection": c.server_connection,
                "client_at_server": c.client,
                "server_at_server": c.server,
                "up_ns": _describe_quantiles(c.up_ns),
                "down_ns": _describe_quantiles(c.down_ns),
                "lost_up": c.lost_up,
                "lost_down": c.lost_down,
            }
            for c in ends.connections
        ],
    }


def _describe_way(way: Way) -> dict[str, Any]:
    return {
        "delay_ns": _describe_quantiles(way.delay_ns),
        "packets": way.packets,
        "lost_packets": way.lost_packets,
        "lost": [
            {
                "connection": lost.connection,
                "packet": lost.packet,
                "time_ns": lost.time_ns,
                "payload_bytes": lost.payload_bytes,
            }
            for lost in way.lost
        ],
        "not_recorded_packets": way.not_recorded_packets,
        "not_seen_sent_packets": way.not_seen_sent_packets,
        "retransmissions": way.retransmissions,
        "needless_retransmissions": way.needless_retransmissions,
    }


def _describe_traffic(t: Traffic) -> dict[str, int]:
    return {
        "packets": t.packets,
        "payload_packets": t.payload_packets,
        "control_packets": t.control_packets,
        "ping_packets": t.ping_packets,
        "ping_ack_packets": t.ping_ack_packets,
        "window_update_packets": t.window_update_packets,
        "settings_packets": t.settings_packets,
        "payload_bytes": t.payload_bytes,
        "data_frames": t.data_frames,
        "header_frames": t.header_frames,
        "pings": t.pings,
        "ping_acks": t.ping_acks,
        "window_updates": t.window_updates,
        "settings": t.settings,
        "messages": t.messages,
        "message_bytes": t.message_bytes,
        "message_packets": t.message_packets,
        "busy_intervals_10ms": t.busy_intervals_10ms,
    }


def _describe_connection(c: ConnectionFacts) -> dict[str, Any]:
    return {
        "connection": c.connection,
        "client": c.client,
        "server": c.server,
        "protocol": c.protocol,
        "opened_time_ns": c.opened_time_ns,
        "closed_time_ns": c.closed_time_ns,
        "handshake_rtt_ns": c.handshake_rtt_ns,
        "min_rtt_ns": c.min_rtt_ns,
        "vantage": c.vantage,
        "roles_from": c.roles_from,
        "mss": c.mss,
        "complete": c.complete,
        "tls": c.tls,
        "client_implementation": c.client_implementation,
        "client_implementation_inferred": c.client_implementation_inferred,
        "server_implementation": c.server_implementation,
        "server_implementation_inferred": c.server_implementation_inferred,
        "rpcs": c.rpcs,
        "max_concurrent_rpcs": c.max_concurrent_rpcs,
        "other_streams": c.other_streams,
        "peer_max_concurrent_streams": c.peer_max_concurrent_streams,
        "packets_client": c.packets_client,
        "packets_server": c.packets_server,
        "bytes_client": c.bytes_client,
        "bytes_server": c.bytes_server,
        "retransmitted_packets": c.retransmitted_packets,
        "duplicate_packets": c.duplicate_packets,
        "keep_alives": c.keep_alives,
        "out_of_order_packets": c.out_of_order_packets,
        "urgent_packets": c.urgent_packets,
        "missing_bytes": c.missing_bytes,
        "budget": dict(c.budget),
    }


def _describe_quantiles(q: Quantiles | None) -> dict[str, int] | None:
    if q is None:
        return None
    return {"min": q.min, "p50": q.p50, "p90": q.p90, "p99": q.p99, "p999": q.p999, "max": q.max, "mean": q.mean}


def _describe_intervals(of: Mapping[str, Interval] | None) -> dict[str, list[int | None]] | None:
    return None if of is None else {name: list(ends) for name, ends in of.items()}


def _describe_method(m: MethodFacts) -> dict[str, Any]:
    return {
        "method": m.method,
        "label": m.label,
        "rpcs": m.rpcs,
        "latency_ns": _describe_quantiles(m.latency_ns),
        "statuses": dict(m.statuses),
        "messages": m.messages,
        "messages_per_s": m.messages_per_s,
        "turnaround_ns": _describe_quantiles(m.turnaround_ns),
        "latency_intervals_ns": _describe_intervals(m.latency_intervals_ns),
        "turnaround_intervals_ns": _describe_intervals(m.turnaround_intervals_ns),
        "first_start_time_ns": m.first_start_time_ns,
        "last_end_time_ns": m.last_end_time_ns,
        "budget": dict(m.budget),
    }


def _describe_remedy(r: Remedy) -> dict[str, str]:
    present = {} if r.present is None else {"present": r.present}
    return {"implementation": r.implementation, "knob": r.knob, "note": r.note} | present


def _describe_finding(f: Finding) -> dict[str, Any]:
    return {
        "id": f.id,
        "title": f.title,
        "severity": f.severity,
        "confidence": f.confidence,
        "scope": {"connections": list(f.scope.connections), "methods": list(f.scope.methods)},
        "lost_ns": f.lost_ns,
        "share": f.share,
        "metrics": dict(f.metrics),
        "evidence": [{"packet": e.packet, "time_ns": e.time_ns, "what": e.what} for e in f.evidence],
        "display_filter": packet_filter(e.packet for e in f.evidence),
        "explanation": f.explanation,
        "remedies": [_describe_remedy(r) for r in f.remedies],
        "references": list(f.references),
        "part_of": f.part_of,
    }
