"""Comments on packets: the evidence of findings, and where blocked intervals begin and end."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ...analyzer.model.analysis import Analysis
from ...analyzer.model.budget import CAUSES
from ...analyzer.model.text import count, duration, safe
from ...analyzer.tables import DIRECTIONS, Tables, Waits
from ..shared.causes import MEANINGS

WORD = "grpcdiag"
"""Every comment begins with it: `frame.comment contains "grpcdiag"` lists them."""
LONGEST = 500
"""Most characters of a comment."""
OF_A_PACKET = 8
"""Most comments of a packet; another one counts the rest."""
INTERVALS = 50_000
"""Most blocked intervals with comments, the longest first: two comments of some 150 bytes each."""

LOOK_AT = {
    "congestion_window": "tcp.analysis.bytes_in_flight of this side",
    "receive_window": "tcp.window_size of the other side",
    "stream_window": "WINDOW_UPDATE on this stream from the other side",
    "connection_window": "WINDOW_UPDATE on stream 0 from the other side",
    "loss_recovery": "tcp.analysis.retransmission",
    "delayed_ack": "when the other side acknowledges",
    "head_of_line": "which stream's bytes come first",
    "network_queue": "tcp.analysis.ack_rtt",
    "peer_unreachable": "whether the other side sends anything",
}
"""What in Wireshark shows a cause."""


def list_comments(analysis: Analysis, tables: Tables) -> list[tuple[int, str]]:
    """List the comments with the numbers of their packets: findings first, bounded for each packet."""
    found: Counter[int] = Counter()
    comments = []
    for packet, text in (*_comment_evidence(analysis), *_comment_intervals(tables.waits)):
        found[packet] += 1
        if found[packet] <= OF_A_PACKET:
            comments.append((packet, make_comment(text)))
    more = ((packet, number - OF_A_PACKET) for packet, number in found.items() if number > OF_A_PACKET)
    return comments + [(packet, f"{WORD}: {count(number, 'more comment')} on this packet") for packet, number in more]


def count_uncommented(tables: Tables) -> int:
    """Count the blocked intervals beyond the limit."""
    return max(len(tables.waits.duration_ns) - INTERVALS, 0)


def make_comment(text: str) -> str:
    """Write a comment, which may have text of the capture."""
    comment = safe(f"{WORD} {text}")
    return comment if len(comment) <= LONGEST else comment[: LONGEST - 1] + "…"


def _comment_evidence(analysis: Analysis) -> Iterator[tuple[int, str]]:
    for finding in analysis.findings:
        for item in finding.evidence:
            advice = f"grpcdiag explain {finding.id}"
            yield item.packet, f"{finding.id} ({finding.severity}): {item.what}. {finding.title}; see {advice}"


def _comment_intervals(waits: Waits) -> Iterator[tuple[int, str]]:
    longest = np.argsort(-waits.duration_ns, kind="stable")[:INTERVALS]
    for row in longest.tolist():
        cause, side = CAUSES[waits.cause[row]], DIRECTIONS[waits.direction[row]]
        stop, resume = int(waits.stopped_at_packet[row]), int(waits.resumed_at_packet[row])
        span, stream = duration(int(waits.duration_ns[row])), int(waits.stream[row])
        owed = int(waits.owed_bytes[row])
        left = f" with {owed:,} bytes left to send" if owed else ""
        look = f"; look at {LOOK_AT[cause]}" if cause in LOOK_AT else ""
        why = f"{cause} ({MEANINGS[cause]})"
        yield stop, f"stop: the {side} stops{left} on stream {stream}, until packet {resume}, {span}: {why}{look}"
        yield resume, f"resume: the {side} sends again after {span}, since packet {stop}, on stream {stream}: {why}"
