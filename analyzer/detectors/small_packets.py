"""Many small packets are sent where a few would do.

What it finds
-------------
Both hosts are busy with a packet rate that is high for the bytes sent. Each packet costs a system call, an interrupt
and a wake-up at both ends: the load grows with packets, not with bytes.

Two habits multiply packets. *Spread*: messages of many streams come spread over time, so that each leaves in a
separate packet. The next message of its stream is far away, and messages of other streams follow within
milliseconds. *Cut up*: messages are written in pieces. PINGs and WINDOW_UPDATEs that respond to the messages come on
top.

How it is decided
-----------------
A direction of a connection sends small packets when their payload is a quarter of a full segment or less on average.

Spread: 16 or more streams are open at once, each with five messages or more and at most one message every 50 ms. The
direction sends 200 messages a second or more and fewer than four of them per packet. Its packets are compared with
the fewest that would carry the same: one for each interval of 10 ms in which a message ended, or as many full
segments as the bytes need, whichever is more. The 50 ms exclude callers that wait for their responses: holding back
one of their messages would delay them.

Cut up: the packets are compared with messages and header blocks, or with full segments, whichever is more. Packets
with control frames alone are left out.

Three times the packets are a warning, ten times are critical. A lone caller's only message is never too small.

When it cannot tell
-------------------
The capture may show larger packets than the wire, where the network card cuts them (TSO) or joins them (GRO): there
are at least as many on the wire. The capture may lack packets, and with them the beginnings of streams; messages of
these streams stay unknown, and nothing is reported. Packets do not show whether they are what loads the hosts.

What would refute it
--------------------
The load of both hosts stays the same when the same messages are sent together.

What to do
----------
Send messages of many streams together: align the timers that produce them, or gather messages for some milliseconds
and send several in one write or one message. Send one response for several messages. Fix the HTTP/2 windows, so that
no BDP estimator responds to each message with PING and WINDOW_UPDATE. Let the network card coalesce interrupts.

References
----------
- https://ably.com/blog/grpc-stream-performance: ten times the packets for the same messages
- https://github.com/grpc/grpc-go/issues/1512: many callers on one connection
- https://github.com/grpc/grpc-go/issues/1256, https://github.com/grpc/grpc-go/issues/1043: packets per message
- https://docs.kernel.org/networking/segmentation-offloads.html
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts import contradictions, control, hosts, methods, ratings
from ..facts.control import Shares, SlowStreamLimits, mark_slow_streams, show_span, sum_both
from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count, duration, size
from ..software import intents, settings
from ..software.recognise import recognise
from ..tables import DIRECTIONS, Ints, Mask, Tables
from ..tables.grouping import distinct

ID = "small-packets"


def _write_figure(analysis: Analysis) -> str:
    packets, payload = (
        contradictions.add_up(analysis, lambda s: s.payload_packets),
        contradictions.add_up(analysis, lambda s: s.payload_bytes),
    )
    messages = contradictions.add_up(analysis, lambda s: s.messages)
    mean = payload / packets if packets else 0
    return f"{count(packets, 'packet')} with payload for {count(messages, 'message')}, {size(mean)} each on average"


ABOUT = About(
    example="recorded/field-cases/ably-staggered-veth.pcap.zst",
    figure=_write_figure,
    precedence=7,
    whole_connections=True,
    picture="packet_rates",
    explains=("data_packets",),
)


class Limits(SlowStreamLimits, frozen=True, eq=False):
    messages_per_second: float = 200.0
    """Fewest messages per second of a direction (heuristic: one each 5 ms, two in an interval of 10 ms)."""
    messages_per_packet: float = 4.0
    """Messages per packet from which they are sent together (heuristic; measured: 2 spread, 11 bunched)."""
    filled: float = 0.25
    """Payload per packet as a share of a full segment (heuristic: four such packets would fit into one)."""
    packets: int = 500
    """Fewest packets with payload of the direction (heuristic: fewer are no load)."""
    messages: int = 100
    """Fewest messages of a direction that cuts them up (heuristic: fewer show no pattern)."""
    warning_factor: float = control.PACKETS_FACTOR
    """A warning from this many times the packets needed (heuristic: HEADERS, DATA and END_STREAM apart make three)."""
    critical_factor: float = 10.0
    """Critical from this many times (ably.com/blog/grpc-stream-performance had ten times the packets)."""
    undecoded: float = 0.01
    """Most payload that could not be read as HTTP/2, as a share (heuristic: next to none)."""
    unread: float = 0.1
    """Most payload that belongs to no known message, where packets are missing (heuristic: a small part)."""
    default_mss: int = control.DEFAULT_MSS
    """Bytes of a full segment where the capture does not show it (Ethernet MTU 1500 less headers and timestamps)."""


class _Wasted(Struct, frozen=True, eq=False):
    """How many times the needed packets each direction sends, one element per direction of the capture."""

    spread: Shares
    cut: Shares
    needed: Ints

    @property
    def factor(self) -> Shares:
        return np.maximum(self.spread, self.cut)


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the directions that send too many packets."""
    if int(tables.directions.payload_packets.max(initial=0)) < min(limits.packets, limits.messages):
        return
    wasted = _compare_with_needed(tables, limits)
    if (wasted.factor >= limits.warning_factor).any():
        yield _make_finding(tables, wasted, limits)


def _compare_with_needed(tables: Tables, limits: Limits) -> _Wasted:
    d, c = tables.directions, tables.connections
    packets, messages = d.payload_packets.astype(np.int64), d.messages.astype(np.int64)
    mss = np.stack([c.mss_client, c.mss_server], axis=1).reshape(-1).astype(np.int64)
    mss = np.where(mss > 0, mss, limits.default_mss)
    sent = np.stack([c.bytes_client, c.bytes_server], axis=1).reshape(-1).astype(np.int64)
    small = sent <= limits.filled * mss * packets
    small &= np.repeat(c.undecoded_bytes + c.undelivered_bytes <= limits.undecoded * c.payload_bytes, 2)
    small &= _mark_read(tables, sent, limits)
    segments = -(-sent // mss)
    needed = np.maximum(np.maximum(d.busy_intervals.astype(np.int64), segments), 1)
    slow = mark_slow_streams(tables, limits)
    spread = small & np.repeat(slow, 2) & (packets >= limits.packets)
    spread &= messages < limits.messages_per_packet * d.message_packets
    seconds = (d.last_message_time_ns - d.first_message_time_ns) / 1e9
    spread &= messages >= limits.messages_per_second * np.maximum(seconds, 1e-9)
    whole = np.maximum(np.maximum(messages + d.header_frames, segments), 1)
    cut = small & (messages >= limits.messages)
    return _Wasted(
        spread=np.where(spread, packets / needed, 0.0),
        cut=np.where(cut, (packets - d.control_packets) / whole, 0.0),
        needed=np.where(spread, needed, whole),
    )


def _mark_read(tables: Tables, sent: Ints, limits: Limits) -> Mask:
    """Mark directions whose messages are known although bytes are missing: unread messages fill packets, too."""
    d = tables.directions
    frames = d.header_frames + d.data_frames + d.window_updates + d.pings + d.ping_acks + d.settings
    known = d.message_bytes + d.header_block_bytes + 5 * d.messages + 9 * frames + 8 * (d.pings + d.ping_acks)
    lacks = np.repeat(tables.connections.missing_bytes > 0, 2)
    return np.asarray(~lacks | (known >= (1 - limits.unread) * sent))


def _make_finding(tables: Tables, wasted: _Wasted, limits: Limits) -> Finding:
    d, factors = tables.directions, wasted.factor
    guilty = np.flatnonzero(factors >= limits.warning_factor)
    worst = int(guilty[np.argmax(d.payload_packets[guilty] - wasted.needed[guilty])])
    row, factor = worst // 2, float(factors[worst])
    sender = hosts.host(tables, row, worst % 2)
    connections = distinct(guilty // 2).tolist()
    spread = float(wasted.spread[worst]) >= float(wasted.cut[worst])
    packets, needed = int(d.payload_packets[worst]), int(wasted.needed[worst])
    metrics = _measure(tables, wasted, worst, len(connections))
    reason = "messages of many streams are sent one by one" if spread else "messages are written in pieces"
    return Finding(
        id=ID,
        title=f"{sender} sends {packets:,} packets where {needed:,} are enough: {reason}",
        severity=ratings.severity(factor, limits.warning_factor, limits.critical_factor),
        confidence=ratings.lower("high" if spread else "medium", ratings.quality_allows(tables)),
        scope=Scope(tuple(connections), methods.methods_of_connections(tables, connections)),
        metrics=metrics,
        evidence=tuple(_show_packets(tables, worst)),
        explanation=_explain(tables, worst, metrics, spread=spread),
        remedies=_list_remedies(hosts.implementation(tables, row, worst % 2)),
        references=(
            "https://ably.com/blog/grpc-stream-performance",
            "https://github.com/grpc/grpc-go/issues/1512",
            "https://docs.kernel.org/networking/segmentation-offloads.html",
        ),
        verdict=(
            f"{sender} sends {factor:,.0f} times the packets that are needed because {reason}: "
            + ("gather them for some milliseconds." if spread else "write them whole.")
        ),
    )


def _measure(tables: Tables, wasted: _Wasted, worst: int, connections: int) -> dict[str, int | float | str]:
    d, row = tables.directions, worst // 2
    payload, control = sum_both(d.payload_packets, row), sum_both(d.control_packets, row)
    messages = sum_both(d.messages, row)
    sent = int((tables.connections.bytes_client, tables.connections.bytes_server)[worst % 2][row])
    seconds = max(int(d.last_message_time_ns[worst] - d.first_message_time_ns[worst]), 1) / 1e9
    mss = int((tables.connections.mss_client, tables.connections.mss_server)[worst % 2][row])
    frames = sum(sum_both(column, row) for column in (d.pings, d.ping_acks, d.window_updates, d.settings))
    return {
        "connections": connections,
        "sender": DIRECTIONS[worst % 2],
        "packets_sent": int(d.payload_packets[worst]),
        "packets_needed": int(wasted.needed[worst]),
        "factor": round(float(wasted.factor[worst]), 2),
        "payload_packets": payload,
        "control_packets": control,
        "messages": messages,
        "packets_per_message": round(payload / max(messages, 1), 3),
        "messages_per_packet": round(int(d.messages[worst]) / max(int(d.message_packets[worst]), 1), 2),
        "payload_bytes_per_packet": round(sent / max(int(d.payload_packets[worst]), 1), 1),
        "mss": mss,
        "data_frames_per_packet": round(int(d.data_frames[worst]) / max(int(d.message_packets[worst]), 1), 2),
        "estimator_pings": sum_both(d.bdp_pings, row),
        "control_frames_per_data_frame": round(frames / max(sum_both(d.data_frames, row), 1), 3),
        "streams": int(tables.connections.max_concurrent_rpcs[row]),
        "messages_per_s": round(int(d.messages[worst]) / seconds, 1),
        "busy_intervals_10ms": int(d.busy_intervals[worst]),
        "intervals_10ms": max(int(seconds * 100) + 1, int(d.busy_intervals[worst])),
    }


def _explain(tables: Tables, worst: int, m: dict[str, int | float | str], *, spread: bool) -> str:
    sender = hosts.host(tables, worst // 2, worst % 2)
    segment = f" (a full segment holds {int(m['mss']):,})" if int(m["mss"]) > 0 else ""
    head = (
        f"{sender} sent {int(tables.directions.messages[worst]):,} messages on {count(int(m['streams']), 'stream')} in "
        f"{m['packets_sent']:,} packets of {m['payload_bytes_per_packet']} bytes on average{segment}. A packet with "
        f"message bytes holds {m['messages_per_packet']} messages and {m['data_frames_per_packet']} DATA frames on "
        "average. "
    )
    reason = (
        "They are spread over time: each stream sends seldom, but together they send "
        f"{float(m['messages_per_s']):,.0f} messages a second in {m['busy_intervals_10ms']:,} of "
        f"{m['intervals_10ms']:,} intervals of 10 ms. Gathered within these intervals they would need "
        f"{m['packets_needed']:,} packets. "
        if spread
        else f"Messages, headers and full segments would need {m['packets_needed']:,} packets: messages are cut up. "
    )
    pings = count(int(m["estimator_pings"]), "PING is a BDP probe", "PINGs are BDP probes")
    probes = f" {pings}." if m["estimator_pings"] else ""
    return (
        f"{head}{reason}{m['control_packets']:,} of all {m['payload_packets']:,} packets with payload of both "
        f"directions carry PING, WINDOW_UPDATE or SETTINGS alone: {m['control_frames_per_data_frame']} such frames "
        f"for each DATA frame.{probes} This costs load at both ends, not time on the wire."
    )


def _show_packets(tables: Tables, worst: int) -> Iterator[Evidence]:
    """Yield the ends of the 10 ms with most packets, and of the connection."""
    d, row = tables.directions, worst // 2
    most, first, last = int(d.dense_packets[worst]), int(d.dense_first_packet[worst]), int(d.dense_last_packet[worst])
    begin, end = int(d.dense_first_time_ns[worst]), int(d.dense_last_time_ns[worst])
    sender = hosts.host(tables, row, worst % 2)
    if most > 1:
        what = f"the first of {most:,} packets of {sender} within {duration(end - begin)} that end messages"
        yield Evidence(first, begin, what)
        yield Evidence(last, end, "the last of them")
    packets, messages = sum_both(d.payload_packets, row), sum_both(d.messages, row)
    counted = f"from here on {packets:,} packets carry {messages:,} messages, both directions"
    yield from show_span(tables, row, counted)


def _list_remedies(implementation: str | None) -> tuple[Remedy, ...]:
    windows = "no BDP estimator, hence no PING and WINDOW_UPDATE for each message; the windows stay as set"
    later = "fewer interrupts for the same packets, some µs later"
    gather = Remedy(
        "application",
        "gather messages for 5 to 10 ms, or align the timers that make them",
        "fewer packets and wake-ups; each message is delayed by up to that time",
    )
    answer = Remedy("application", "one answer for several messages", "fewer packets in the other direction")
    seen = recognise(implementation)
    return (
        *settings.list_settings(intents.NO_BDP_PROBES, seen, windows, general=(gather, answer)),
        *settings.list_own(intents.FEWER_INTERRUPTS, "linux", later),
    )
