"""A server reset streams with NO_ERROR before their answers were complete.

What it finds
-------------
Clients report INTERNAL or UNKNOWN, while the server's log often shows a success. The server reset the stream with the
code NO_ERROR where its trailers should have come, so the answer never arrived in full.

The server may have done the work.

How it is decided
-----------------
RST_STREAM(NO_ERROR) has one meaning: the response is complete, and the client can stop sending its request (RFC 9113
section 8.1). A response of gRPC is complete with its trailers. A call is reported if such a reset of the server ended
it without trailers. After trailers it is normal, and nothing is reported.

The report says how many of these calls had got a part of their response.

When it cannot tell
-------------------
A client may drop a complete answer when the reset follows it, which RFC 9113 forbids. That happens inside the client,
and no packet shows it. Nor does a packet show that a RST of TCP made the client's kernel throw away an answer that had
arrived: calls that a RST ended are `connection-closed-early`. Where bytes of the server are missing from the capture,
its trailers may have been among them; such calls are left out.

What would refute it
--------------------
The client's application got a status for these calls from the server.

What to do
----------
Look for what resets streams in the server, or in a proxy between client and server: a handler that returns before its
response is flushed, a proxy whose backend closed. Update the one that does: a reset without trailers must carry an
error code.

References
----------
- RFC 9113 sections 8.1 and 7: NO_ERROR after a complete response
- grpc/grpc doc/PROTOCOL-HTTP2.md, Errors: NO_ERROR in RST_STREAM is INTERNAL
"""

from collections.abc import Iterator

import numpy as np

from ..facts import draining, failures, hosts, ratings
from ..facts.failures import Failed
from ..model.detector import About, Cost
from ..model.finding import Finding, Remedy, Scope, Skipped
from ..model.text import count
from ..tables import TOUCHES_GAP, Tables

ID = "lost-answer"
ABOUT = About(
    example="recorded/wild/hyper-rst-noerror.pcap.zst",
    caused_by=("stream-timeout", "keepalive-timeout"),
    precedence=2,
    weight="lost_share",
    costs=(Cost("lost_answers", "{} without a complete answer"),),
)

_NO_ERROR, _SERVER = 0, 1


Limits = failures.LossLimits


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about all RPCs that a server reset with NO_ERROR before their trailers."""
    rows = failures.failed(tables)
    lost = (rows.row >= 0) & (rows.reset_by == _SERVER) & (rows.reset_code == _NO_ERROR)
    lost &= ~np.isin(rows.source, (failures.TRAILERS, failures.HTTP_STATUS))
    rows = rows.where(lost & (tables.rpcs.flags[rows.rpc] & TOUCHES_GAP == 0))
    if len(rows):
        yield _make_finding(tables, rows, limits)


_AT_SHUTDOWN = "its shutdown ended them after its GOAWAY, so give that more time (grace)."


def _make_finding(tables: Tables, rows: Failed, limits: Limits) -> Finding:
    everything, connections = tables.rpc_count, failures.connections_of(tables, rows.rpc)
    share, begun = len(rows) / everything, int((rows.http_status != 0).sum())
    server = hosts.name_hosts(tables, connections, _SERVER)
    calls = f"{len(rows):,} of {count(everything, 'RPC')}"
    ends = tables.rpcs.start_time_ns[rows.rpc] + rows.duration_ns
    shut = bool(draining.mark_shut_down(tables, rows.rpc, ends).all())
    return Finding(
        id=ID,
        title=f"{calls} were reset with NO_ERROR before their answer was complete",
        severity=failures.severity_of_loss(len(rows), everything, limits),
        confidence=ratings.quality_allows(tables),
        scope=Scope(connections, failures.methods_of(tables, rows.rpc)),
        metrics={
            "lost_answers": len(rows),
            "answers_begun": begun,
            "rpcs": everything,
            "lost_share": share,
            "lost_by_method": failures.listed(failures.by_method(tables, rows.rpc)),
        },
        evidence=tuple(failures.spans(tables, rows)),
        explanation=(
            f"{server} ended {calls} ({share:.1%}) with RST_STREAM(NO_ERROR) and without trailers; {begun:,} of them "
            "had got a part of their response. NO_ERROR says that the response is complete, but without trailers it "
            "has no status. The server may have done the work: retry only calls that may run twice."
        ),
        remedies=(
            Remedy(
                "application", "the server's and the proxy's log at the times of the evidence", "who reset, and why"
            ),
            Remedy(
                "application", "an error code in resets without trailers", f"on {server}, or a proxy in front of it"
            ),
        ),
        references=("RFC 9113 section 8.1", "grpc/grpc doc/PROTOCOL-HTTP2.md, Errors"),
        verdict=(
            f"{server} reset {calls} with NO_ERROR before the answer was complete, so it is lost: "
            + (_AT_SHUTDOWN if shut else "find what resets streams there or in a proxy in front of it.")
        ),
    )
