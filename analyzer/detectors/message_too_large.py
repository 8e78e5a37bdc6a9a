"""Messages are larger than their receiver accepts.

What it finds
-------------
Calls fail with RESOURCE_EXHAUSTED as soon as their message is large. The end that receives it has a limit, 4 MiB by
default in most implementations.

A client that refuses a response resets the stream, so on the wire such calls look as if they had been cancelled.

How it is decided
-----------------
By the length in the message's prefix, and by who ended the RPC before the message was whole. Two kinds of RPC count.
One has a response above 4 MiB, and its client reset the stream within 100 ms of the prefix, neither at a deadline nor
because another attempt was answered. The other has a request above 4 MiB, to which the server responded with
RESOURCE_EXHAUSTED, a round trip or more after the prefix. No message above 4 MiB may have arrived whole at that host.
Responses need three such RPCs: one or two may have been cancelled by chance. Where the text of the error is known,
requests count only if it says that the message is too large; where it is hidden (`--show-messages` shows it), the
confidence is medium.

When it cannot tell
-------------------
Limits below 4 MiB, and messages that were sent whole before the receiver refused them: these calls stay `cancelled` or
`rpc-errors`. Lengths after decompression are not on the wire, and a limit may count those. A client that cancels its
calls as soon as a response begins looks the same, unless it resets with ENHANCE_YOUR_CALM, as C-core does. So does a
server that refuses long requests for another reason, such as a quota, where the text of the error is hidden.

What would refute it
--------------------
The client's log names another reason than the size of a message, or the same calls succeed unchanged.

What to do
----------
Raise the receiver's limit, or send smaller messages: pages, or a stream of parts. A message is held in memory whole at
both ends.

References
----------
- https://grpc.io/docs/guides/performance/, grpc/grpc include/grpc/impl/channel_arg_names.h (max_receive_message_length)
- grpc/grpc doc/PROTOCOL-HTTP2.md: Length-Prefixed-Message; Errors (RESOURCE_EXHAUSTED and ENHANCE_YOUR_CALM)
"""

import re
from collections.abc import Iterator

import numpy as np

from .. import _core
from ..facts import failures as common
from ..facts import retries, software_at
from ..facts.evidence import FEW_EXAMPLES, show_packet
from ..facts.failures import Failed
from ..facts.hosts import name_hosts
from ..facts.ratings import lower, quality_allows
from ..model.detector import About, Cost
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count
from ..software import intents
from ..tables import ERROR_CODES, Counts, Mask, Tables

ID = "message-too-large"
ABOUT = About(
    example="recorded/wild/grpc-java-receive-limit.pcap.zst",
    precedence=2,
    weight="refused_share",
    costs=(Cost("refused_rpcs", "{} refused"),),
)
RESOURCE_EXHAUSTED, OUT_OF_RANGE = (_core.STATUSES.index(name) for name in ("RESOURCE_EXHAUSTED", "OUT_OF_RANGE"))
TOO_LARGE = re.compile(
    r"message.*(larger|exceeds|too large|too big|too long)|(larger|exceeds|too large).*message", re.I | re.S
)
"""Texts of errors: `received message larger than max` (C-core, grpc-go, grpc-js), `gRPC message exceeds maximum size`
(grpc-java), `decoded message length too large` (tonic)."""
ENHANCE_YOUR_CALM = ERROR_CODES.index("ENHANCE_YOUR_CALM")


class Limits(common.Rates, frozen=True, eq=False):
    few: int = common.FEW
    """Fewer refused requests are `info`, fewer refused responses are none (heuristic: they show no pattern)."""
    limit_bytes: int = 4 << 20
    """Longest message that every receiver accepts by default (GRPC_DEFAULT_MAX_RECV_MESSAGE_LENGTH; as in Go, Java)."""
    prompt_ns: int = 100_000_000
    """Longest time from a prefix to the reset (heuristic: a client that has just started took 75 ms)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the direction in which most messages were refused."""
    rows = common.failed(tables)
    rows = rows.where(rows.row >= 0)
    requests = rows.where(_are_requests(tables, rows, limits))
    responses = rows.where(_are_responses(tables, rows, limits))
    if len(responses) >= max(limits.few, len(requests)):
        yield _make_finding(tables, responses, 1, limits)
    elif len(requests):
        yield _make_finding(tables, requests, 0, limits)


def _are_requests(tables: Tables, rows: Failed, limits: Limits) -> Mask:
    """Mark RPCs that the server refused a round trip or more after the prefix of a long message."""
    begun, ended = tables.failures.cut_request_time_ns[rows.row], tables.rpcs.start_time_ns[rows.rpc] + rows.duration_ns
    later = ended - begun >= np.maximum(tables.connections.near_server_rtt_ns[tables.rpcs.connection[rows.rpc]], 0)
    answered = np.isin(rows.status, (RESOURCE_EXHAUSTED, OUT_OF_RANGE)) & (rows.source == common.TRAILERS) & later
    found: Mask = answered & _are_too_long(tables, rows, 0, limits)
    for place in np.flatnonzero(found).tolist():
        text = _find_text(tables, int(rows.rpc[place])) if tables.errors else None
        # OUT_OF_RANGE is mostly an application's own: only a text tells tonic's
        hidden = text is None and rows.status[place] == RESOURCE_EXHAUSTED
        found[place] = hidden or (text is not None and TOO_LARGE.search(text) is not None)
    return found


def _are_responses(tables: Tables, rows: Failed, limits: Limits) -> Mask:
    """Mark RPCs that their client reset soon after the prefix of a long message, and not at their deadline."""
    begun = tables.failures.cut_response_time_ns[rows.row]
    after = tables.rpcs.start_time_ns[rows.rpc] + rows.duration_ns - begun
    prompt: Mask = (rows.reset_by == 0) & (begun >= 0) & (after <= limits.prompt_ns)
    prompt &= (rows.source != common.CLIENT_DEADLINE) & _are_too_long(tables, rows, 1, limits)
    prompt[prompt] = ~retries.mark_hedged(tables, rows.rpc[prompt].astype(np.int64))
    return prompt


def _are_too_long(tables: Tables, rows: Failed, direction: int, limits: Limits) -> Mask:
    """Mark RPCs with an unfinished message above the limit, whose receiver got none above it whole."""
    receivers = tables.connections.client_ip if direction else tables.connections.server_ip
    accepts = tables.directions.longest_message_bytes[direction::2] > limits.limit_bytes
    too_long: Mask = _lengths(tables, rows, direction) > limits.limit_bytes
    return too_long & ~np.isin(receivers[tables.rpcs.connection[rows.rpc]], receivers[accepts])


def _lengths(tables: Tables, rows: Failed, direction: int) -> Counts:
    failures = tables.failures
    return np.asarray((failures.cut_response_bytes if direction else failures.cut_request_bytes)[rows.row])


def _make_finding(tables: Tables, rows: Failed, direction: int, limits: Limits) -> Finding:
    everything, connections = tables.rpc_count, common.connections_of(tables, rows.rpc)
    lengths = _lengths(tables, rows, direction)
    least, most = int(lengths.min()), int(lengths.max())
    sizes = f"{most:,} bytes" if least == most else f"{least:,} to {most:,} bytes"
    receiver, limit = name_hosts(tables, connections, 1 - direction), f"{limits.limit_bytes:,} bytes"
    refused = f"{len(rows):,} of {count(everything, 'RPC')}"
    status = "OUT_OF_RANGE" if (rows.status == OUT_OF_RANGE).all() else "RESOURCE_EXHAUSTED"
    does = "reset" if direction else f"refused with {status}"
    sees = _SEES if direction else f"The caller sees {status}."
    messages = f"a {'response' if direction else 'request'} of {sizes}"
    explicit = _is_explicit(tables, rows, direction)
    return Finding(
        id=ID,
        title=f"{receiver} {does} {refused} while {messages} arrived",
        severity=common.severity_of_count(len(rows), everything, limits),
        confidence=lower("high" if explicit else "medium", quality_allows(tables)),
        scope=Scope(connections, common.methods_of(tables, rows.rpc)),
        metrics={
            "refused_rpcs": len(rows),
            "rpcs": everything,
            "refused_share": len(rows) / everything,
            "side": "client" if direction else "server",
            "longest_message_bytes": most,
            "shortest_message_bytes": least,
            "refused_by_method": common.listed(common.by_method(tables, rows.rpc)),
        },
        evidence=tuple(_show_examples(tables, rows, direction)),
        explanation=(
            f"{receiver} {does} {refused} before {messages} was whole. No message above {limit} arrived whole there. "
            "That is the usual limit on received messages; a receiver refuses a message by its prefix alone. "
            f"{sees}{'' if explicit else _ALIKE[direction]}"
        ),
        remedies=software_at.list_settings(
            tables, connections, 1 - direction, intents.MESSAGE_SIZE[1 - direction], general=(_PARTS,)
        ),
        references=("grpc/grpc doc/PROTOCOL-HTTP2.md, Length-Prefixed-Message and Errors",),
        verdict=(
            f"{receiver} {does} {refused} while {messages} arrived: check its limit on received messages (4 MiB by "
            f"default){'' if explicit or direction else ' and the texts of the errors'}."
        ),
    )


_SEES = "The caller sees RESOURCE_EXHAUSTED (in tonic OUT_OF_RANGE)."
_ALIKE = (
    " A server that refuses long requests for another reason, such as a quota, would look the same: --show-messages "
    "shows the texts of the errors.",
    " A caller that cancels as soon as a response begins would look the same.",
)


def _is_explicit(tables: Tables, rows: Failed, direction: int) -> bool:
    """Check whether each receiver says that it refuses: by an error's text or, as C-core, by the code of its reset."""
    if direction:
        return bool((rows.reset_code == ENHANCE_YOUR_CALM).all())
    return all(_find_text(tables, rpc) for rpc in rows.rpc.tolist())


def _find_text(tables: Tables, rpc: int) -> str | None:
    """Find the text of an RPC's error; None where there is none, or it is neither known nor asked for."""
    return common.error_text(tables, int(tables.rpcs.grpc_message[rpc]))


def _show_examples(tables: Tables, rows: Failed, direction: int) -> Iterator[Evidence]:
    failures, rpcs = tables.failures, tables.rpcs
    for place, row in enumerate(rows.row[:FEW_EXAMPLES].tolist()):
        rpc, length = int(rows.rpc[place]), int(_lengths(tables, rows, direction)[place])
        where = f"connection {rpcs.connection[rpc]}, stream {rpcs.stream[rpc]}"
        if direction:
            said = f"the prefix of a response of {length:,} bytes ({where})"
            yield show_packet(failures, "cut_response_packet", row, said)
        else:
            said = f"the prefix of a request of {length:,} bytes ({where})"
            yield show_packet(failures, "cut_request_packet", row, said)
        unfinished = "" if direction else f"; the request of {length:,} bytes is not whole"
        yield common.ended(tables, rpc, common.reset_words(tables, rows, place) + unfinished)


_PARTS = Remedy("application", "send pages, or a stream of parts", "messages stay small at both ends")
