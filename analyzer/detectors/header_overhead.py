"""Headers and metadata take more bytes than the messages they come with.

What it finds
-------------
RPCs whose header blocks, as compressed on the wire, are large beside their messages. HPACK sends a repeated header as
one or two bytes; what stays large is new in each call (tokens, trace contexts), larger than the dynamic table (4,096
bytes by default), or marked as never to be indexed.

How it is decided
-----------------
Header blocks of both directions are divided by the RPCs of a connection with twenty RPCs or more. From 512 bytes per
RPC, and a quarter of all payload bytes, it is told as `info`. It is a warning when header blocks are half of all
payload bytes, and one direction needs three times the full segments with them that its messages would need alone; ten
times is critical.

When it cannot tell
-------------------
Which headers are large, and whether they repeat: this version counts bytes of header blocks. Packets that were cut
before the end of a header block.

What would refute it
--------------------
`grpcdiag frames` lists HEADERS and CONTINUATION frames that are small beside the DATA frames of the same streams.

What to do
----------
Send less metadata: authenticate a connection or a stream once, shorten tokens, leave out what nobody reads. Reuse
streams: the headers of a long stream are sent once. Raise the dynamic table where a repeated set of headers does not
fit in it.

References
----------
- RFC 7541 (HPACK) sections 4 and 7.1.3
- RFC 9113 section 6.5.2, SETTINGS_HEADER_TABLE_SIZE
- https://grpc.io/docs/guides/metadata/
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, size
from ..tables import DIRECTIONS, Tables
from . import _control, _figures, _knobs, _shared

ID = "header-overhead"


def _figure(analysis: Analysis) -> str:
    frames = _figures.add_up(analysis, lambda side: side.header_frames)
    payload = _figures.add_up(analysis, lambda side: side.payload_bytes)
    return f"{count(frames, 'header frame')} in {size(payload)} of TCP payload"


ABOUT = About(
    example="recorded/lab/header-overhead.pcap",
    figure=_figure,
    whole_connections=True,
    one_direction=True,
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    rpcs: int = 20
    """RPCs at least (own choice: the first calls of a connection send every header once)."""
    told_bytes: int = 512
    """Header bytes per RPC worth telling (own choice; measured: 12 to 40 bytes where headers repeat)."""
    told_share: float = 0.25
    """Share of all payload bytes worth telling (own choice: a quarter)."""
    share: float = 0.5
    """Share of all payload bytes of a warning (own choice: more headers than anything else)."""
    warning_factor: float = 3.0
    """Segments with headers against segments without, for a warning (own choice: as for `small-packets`)."""
    critical_factor: float = 10.0
    """The same for critical (ten segments are Linux's initial window: then headers cost a round trip)."""
    default_mss: int = 1448
    """Bytes of a full segment where the capture does not tell (Ethernet MTU 1500 less headers and timestamps)."""
    examples: int = 3
    """RPCs shown as evidence (own choice: enough to see a pattern)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over the connections with large header blocks."""
    connections = tables.connections
    rpcs = connections.rpcs.astype(np.int64)
    headers = _control.both(tables.directions.header_block_bytes)
    payload = connections.bytes_client.astype(np.int64) + connections.bytes_server.astype(np.int64)
    told = (rpcs >= limits.rpcs) & (headers >= limits.told_bytes * rpcs) & (headers >= limits.told_share * payload)
    if told.any():
        yield _finding(tables, np.flatnonzero(told), limits)


def _segments(tables: Tables, row: int, side: int, limits: Limits) -> tuple[float, float]:
    """Full segments per RPC of one direction, with header blocks and without."""
    d, c, place = tables.directions, tables.connections, 2 * row + side
    mss = int((c.mss_client, c.mss_server)[side][row]) or limits.default_mss
    rpcs = max(int(c.rpcs[row]), 1)
    messages = (int(d.message_bytes[place]) + 14 * int(d.messages[place])) / rpcs
    return float(np.ceil((messages + int(d.header_block_bytes[place]) / rpcs) / mss)), float(
        max(1, np.ceil(messages / mss))
    )


def _finding(tables: Tables, rows: _control.Rows, limits: Limits) -> Finding:
    d, c = tables.directions, tables.connections
    row = int(rows[np.argmax(_control.both(d.header_block_bytes)[rows])])
    side = int(np.argmax(d.header_block_bytes[2 * row : 2 * row + 2]))
    sender, rpcs = _shared.host(tables, row, side), int(c.rpcs[row])
    headers = int(_control.both(d.header_block_bytes)[row])
    share = headers / max(int(c.bytes_client[row]) + int(c.bytes_server[row]), 1)
    with_headers, without = _segments(tables, row, side, limits)
    factor = with_headers / without if share >= limits.share else 0.0
    metrics: dict[str, int | float | str] = {
        "connections": len(rows),
        "sender": DIRECTIONS[side],
        "rpcs": rpcs,
        "header_bytes": headers,
        "header_bytes_per_rpc": headers // rpcs,
        "message_bytes_per_rpc": int(_control.both(d.message_bytes)[row]) // rpcs,
        "header_share_of_bytes": round(share, 4),
        "segments_per_rpc": with_headers,
        "segments_per_rpc_without_headers": without,
    }
    return Finding(
        id=ID,
        title=f"{headers // rpcs:,} bytes of headers per RPC: {share:.0%} of all payload bytes",
        severity=_shared.severity(factor, limits.warning_factor, limits.critical_factor),
        confidence=_shared.quality_allows(tables),
        scope=Scope(tuple(rows.tolist()), _shared.methods_of_connections(tables, rows.tolist())),
        lost_ns=None,
        share=None,
        metrics=metrics,
        evidence=tuple(_evidence(tables, row, limits)),
        explanation=(
            f"{rpcs:,} RPCs carried {headers:,} bytes of compressed header blocks, {headers // rpcs:,} each, beside "
            f"{metrics['message_bytes_per_rpc']:,} bytes of messages. Most come from {sender}, whose RPCs need "
            f"{with_headers:,.0f} full segments with them and {without:,.0f} without. HPACK did not shorten them: "
            "they are new in each call, larger than its table, or marked as never indexed."
        ),
        remedies=_remedies(_shared.implementation(tables, row, side), sender),
        references=("RFC 7541 section 4", "RFC 9113 section 6.5.2", "https://grpc.io/docs/guides/metadata/"),
        verdict=(
            f"Headers of {headers // rpcs:,} bytes per RPC, most from {sender}, are {share:.0%} of all payload bytes: "
            "send less metadata, or fewer and longer streams."
        ),
    )


def _evidence(tables: Tables, row: int, limits: Limits) -> Iterator[Evidence]:
    """RPCs after the first ones: their headers could have been indexed by then."""
    rpcs = tables.rpcs
    later = np.flatnonzero(rpcs.connection == row)[limits.rpcs // 2 :][: limits.examples]
    for one in later.tolist():
        what = f"HEADERS of stream {int(rpcs.stream[one])} begin, one of the RPCs whose header blocks are counted"
        yield Evidence(int(rpcs.first_packet[one]), int(rpcs.start_time_ns[one]), what)


def _remedies(implementation: str | None, sender: str) -> tuple[Remedy, ...]:
    table = "a larger dynamic table helps only where the same headers repeat and do not fit; memory per connection"
    return _knobs.seen_first(
        (
            Remedy(
                "application", "less metadata per call", f"at {sender}: shorter tokens, no values that nobody reads"
            ),
            Remedy("application", "a stream in place of many calls", "its headers are sent once"),
            Remedy("grpc-go", "grpc.WithMaxHeaderListSize(n)", "makes such calls fail instead: to find who sends them"),
            Remedy(_knobs.C_CORE, "GRPC_ARG_HTTP2_HPACK_TABLE_SIZE_DECODER=n at the receiver", table),
            Remedy("Envoy", "http2_protocol_options: hpack_table_size", table),
        ),
        implementation,
    )
