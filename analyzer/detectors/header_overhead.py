"""Headers and metadata take more bytes than the messages they come with.

What it finds
-------------
Small calls send many bytes, and most of them are headers. The report compares header blocks, as compressed on the
wire, with the messages of the same RPCs.

HPACK sends a repeated header as one or two bytes. A header stays large when it is new in each call (tokens, trace
contexts), larger than the dynamic table (4,096 bytes by default), or marked as never indexed.

How it is decided
-----------------
Header blocks of both directions are divided by the RPCs of a connection with twenty RPCs or more. From 512 bytes per
RPC, and a quarter of all payload bytes, it is `info`. It is a warning when header blocks are half of all payload
bytes, and one direction needs three times the full segments that its messages would need alone; ten times is
critical.

When it cannot tell
-------------------
Which headers are large, and whether they repeat: this version counts bytes of header blocks. The same holds for
packets that were cut before the end of a header block.

What would refute it
--------------------
`grpcdiag frames` lists HEADERS and CONTINUATION frames that are small compared with the DATA frames of the same
streams.

What to do
----------
Send less metadata: authenticate a connection or a stream once, shorten tokens, leave out what no program reads.
Reuse streams: the headers of a long stream are sent once. Raise the dynamic table where a repeated set of headers
does not fit in it.

References
----------
- RFC 7541 (HPACK) sections 4 and 7.1.3
- RFC 9113 section 6.5.2, SETTINGS_HEADER_TABLE_SIZE
- https://grpc.io/docs/guides/metadata/
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import contradictions, control, evidence, hosts, methods, ratings
from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, size
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import DIRECTIONS, Tables

ID = "header-overhead"


def _write_figure(analysis: Analysis) -> str:
    frames = contradictions.add_up(analysis, lambda side: side.header_frames)
    payload = contradictions.add_up(analysis, lambda side: side.payload_bytes)
    return f"{count(frames, 'header frame')} in {size(payload)} of TCP payload"


ABOUT = About(
    example="recorded/lab/header-overhead.pcap",
    figure=_write_figure,
    whole_connections=True,
    one_direction=True,
    picture="packet_rates",
)


class Limits(Struct, frozen=True, eq=False):
    rpcs: int = 20
    """Fewest RPCs (heuristic: the first calls of a connection send every header once)."""
    told_bytes: int = 512
    """Reported from this many header bytes per RPC (heuristic; measured: 12 to 40 bytes where headers repeat)."""
    told_share: float = 0.25
    """Reported from this share of all payload bytes (heuristic: a quarter)."""
    share: float = 0.5
    """A warning from this share of all payload bytes (heuristic: more headers than anything else)."""
    warning_factor: float = control.PACKETS_FACTOR
    """A warning from this ratio of segments with and without headers (heuristic: as for `small-packets`)."""
    critical_factor: float = 10.0
    """Critical from this ratio (ten segments are Linux's initial window: headers then cost a round trip)."""
    default_mss: int = control.DEFAULT_MSS
    """Bytes of a full segment where the capture does not show it (Ethernet MTU 1500 less headers and timestamps)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the connections with large header blocks."""
    connections = tables.connections
    rpcs = connections.rpcs.astype(np.int64)
    headers = control.sum_directions(tables.directions.header_block_bytes)
    payload = connections.bytes_client.astype(np.int64) + connections.bytes_server.astype(np.int64)
    reported = (rpcs >= limits.rpcs) & (headers >= limits.told_bytes * rpcs) & (headers >= limits.told_share * payload)
    if reported.any():
        yield _make_finding(tables, np.flatnonzero(reported), limits)


def _count_segments(tables: Tables, row: int, side: int, limits: Limits) -> tuple[float, float]:
    """Count full segments per RPC of one direction, with header blocks and without."""
    d, c, place = tables.directions, tables.connections, 2 * row + side
    mss = int((c.mss_client, c.mss_server)[side][row]) or limits.default_mss
    rpcs = max(int(c.rpcs[row]), 1)
    messages = (int(d.message_bytes[place]) + 14 * int(d.messages[place])) / rpcs
    return float(np.ceil((messages + int(d.header_block_bytes[place]) / rpcs) / mss)), float(
        max(1, np.ceil(messages / mss))
    )


def _make_finding(tables: Tables, rows: control.Rows, limits: Limits) -> Finding:
    d, c = tables.directions, tables.connections
    row = int(rows[np.argmax(control.sum_directions(d.header_block_bytes)[rows])])
    side = int(np.argmax(d.header_block_bytes[2 * row : 2 * row + 2]))
    sender, rpcs = hosts.host(tables, row, side), int(c.rpcs[row])
    headers = control.sum_both(d.header_block_bytes, row)
    share = headers / max(int(c.bytes_client[row]) + int(c.bytes_server[row]), 1)
    with_headers, without = _count_segments(tables, row, side, limits)
    factor = with_headers / without if share >= limits.share else 0.0
    metrics: dict[str, int | float | str] = {
        "connections": len(rows),
        "sender": DIRECTIONS[side],
        "rpcs": rpcs,
        "header_bytes": headers,
        "header_bytes_per_rpc": headers // rpcs,
        "message_bytes_per_rpc": control.sum_both(d.message_bytes, row) // rpcs,
        "header_share_of_bytes": round(share, 4),
        "segments_per_rpc": with_headers,
        "segments_per_rpc_without_headers": without,
    }
    return Finding(
        id=ID,
        title=f"{headers // rpcs:,} bytes of headers per RPC",
        severity=ratings.severity(factor, limits.warning_factor, limits.critical_factor),
        confidence=ratings.quality_allows(tables),
        scope=Scope(tuple(rows.tolist()), methods.methods_of_connections(tables, rows.tolist())),
        metrics=metrics,
        evidence=tuple(_show_headers(tables, row, limits)),
        explanation=(
            f"{rpcs:,} RPCs carried {headers:,} bytes of compressed header blocks, {headers // rpcs:,} each, and "
            f"{metrics['message_bytes_per_rpc']:,} bytes of messages each. Most headers come from {sender}, whose RPCs "
            f"need {with_headers:,.0f} full segments with them and {without:,.0f} without. HPACK did not shorten them: "
            "they are new in each call, larger than its table, or marked as never indexed."
        ),
        remedies=_list_remedies(hosts.implementation(tables, row, side), sender),
        references=("RFC 7541 section 4", "RFC 9113 section 6.5.2", "https://grpc.io/docs/guides/metadata/"),
        verdict=(
            f"Headers are {share:.0%} of all payload bytes, most of them from {sender}: send less metadata per call."
        ),
    )


def _show_headers(tables: Tables, row: int, limits: Limits) -> Iterator[Evidence]:
    """Yield RPCs after the first ones, whose headers could have been indexed by then."""
    rpcs = tables.rpcs
    later = np.flatnonzero(rpcs.connection == row)[limits.rpcs // 2 :][: evidence.EXAMPLES]
    for one in later.tolist():
        what = f"HEADERS of stream {int(rpcs.stream[one])} begin; the RPC is one of those counted"
        yield Evidence(int(rpcs.first_packet[one]), int(rpcs.start_time_ns[one]), what)


def _list_remedies(implementation: str | None, sender: str) -> tuple[Remedy, ...]:
    table = "helps only where the same headers repeat and do not fit in the table; more memory per connection"
    less = Remedy(
        "application", "less metadata per call", f"at {sender}: shorter tokens, no values that no program reads"
    )
    stream = Remedy("application", "a stream in place of many calls", "its headers are sent once")
    return settings.list_settings(intents.LESS_HEADERS, recognise(implementation), table, general=(less, stream))
