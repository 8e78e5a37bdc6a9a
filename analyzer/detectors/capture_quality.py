"""The capture lacks something, and the rest can be trusted only so far.

What it finds
-------------
What is missing or wrong in the capture itself: packets dropped while capturing, packets cut by the snaplen, bytes that
were never recorded, connections of which one direction alone was captured, a damaged file, connections that began
before it, TLS without keys, packets recorded twice, clocks that step. It says what that hides. A capture without such
trouble has no such finding.

How it is decided
-----------------
By counts. Missing bytes are those that acknowledgements or later segments prove to have been sent; dropped
packets are what the file says itself. One direction is missing where the other acknowledges its bytes and none of
them is there; findings that need both are then not given. It is for information, and a warning when a larger part of
the bytes or packets is hidden, because then figures and findings speak of a part of the traffic alone. A snaplen and a
late begin were chosen by who captured: what they hide is for information only. RPCs that touch no hole keep their times
and sizes, and it is told how many they are. Packets recorded twice and clock steps are told when they are more than one
in a hundred; the analysis copes with both.

When it cannot tell
-------------------
A classic pcap file does not say how many packets were dropped. Connections that the capture lacks altogether leave no
trace in it. A cut that falls outside of TCP payload hides nothing and is not told.

What would refute it
--------------------
Another capture of the same traffic, taken with the settings below, gives the same figures.

What to do
----------
Capture again: `tcpdump -s 0` (whole packets), `-B 65536` (a larger buffer against drops), begin before the first
connection is opened, capture both directions on one interface, and not `-i any` where packets pass twice. End with
SIGINT and wait for tcpdump to finish. For TLS record the key log (`SSLKEYLOGFILE`, or Go's `tls.Config.KeyLogWriter`).

References
----------
- tcpdump(1): -s, -B, -U
- pcapng: Interface Statistics Block (dropped packets), Decryption Secrets Block
- Paxson, Automated Packet Trace Analysis of TCP Implementations (SIGCOMM 1997): errors of packet filters
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count
from ..summary.figures import HTTP2, TLS, still_encrypted
from ..tables import DIRECTIONS, Counts, Tables
from ._failures import Mask, counted

ID = "capture-quality"


def _figure(analysis: Analysis) -> str:
    quality, dropped = analysis.quality, analysis.capture.dropped_packets
    told = "" if dropped is None else f", {count(dropped, 'packet')} dropped while capturing"
    return f"{count(quality.missing_bytes, 'byte')} of payload missing, {quality.truncated_packets:,} cut packets{told}"


ABOUT = About(
    example="recorded/truncated.pcap",
    figure=_figure,
    one_direction=True,
)


class Limits(Struct, frozen=True, eq=False):
    """Thresholds, each with its source."""

    hidden_bytes: float = 0.05
    """Part of the payload bytes missing or not readable from which it is a warning (own choice: one in twenty)."""
    encrypted_bytes: float = 0.50
    """Part of the payload bytes encrypted from which it is a warning (own choice: more than is seen)."""
    dropped_packets: float = 0.01
    """Part of the packets dropped from which it is a warning (own choice: a loss that TCP itself would feel)."""
    odd_packets: float = 0.01
    """Part of the packets recorded twice or stepping back in time from which it is told (own choice: one in 100)."""
    examples: int = 2
    """Packets shown as evidence for each trouble (own choice: enough to look)."""


class _Trouble(Struct, frozen=True, eq=False):
    """One thing that is wrong with the capture; `share` of its bytes or packets, `grave` where that is too large."""

    name: str
    count: int
    text: str
    hides: str
    grave: bool
    connections: Counts
    remedy: Remedy | None


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding over everything that is wrong with the capture."""
    troubles = [trouble for trouble in _troubles(tables, limits) if trouble.count]
    if troubles:
        yield _finding(tables, sorted(troubles, key=lambda trouble: not trouble.grave), limits)


def _troubles(tables: Tables, limits: Limits) -> Iterator[_Trouble]:
    yield from _of_bytes(tables, limits)
    yield from _of_packets(tables, limits)
    yield from _of_the_file(tables)


def _of_bytes(tables: Tables, limits: Limits) -> Iterator[_Trouble]:
    table = tables.connections
    seen = (table.protocol == HTTP2) | (table.protocol == TLS)
    whole = max(1, int(table.payload_bytes[seen].sum()) + int(table.missing_bytes[seen].sum()))
    cut = bool(tables.capture["truncated_packets"])
    gap, most, half = _SNAPLEN if cut else _BUFFER, limits.hidden_bytes, limits.encrypted_bytes
    unmeant = seen & (table.complete == 1) & (not cut)
    for name, column, text, hides, remedy, where, limit in (
        ("missing_bytes", table.missing_bytes, "bytes of TCP payload are missing", _FRAMES, gap, unmeant, most),
        ("undecoded_bytes", table.undecoded_bytes, "bytes of HTTP/2 could not be read", _FRAMES, gap, unmeant, most),
        ("encrypted_bytes", still_encrypted(tables), "bytes are TLS that was not decrypted", _RPCS, _KEYS, seen, half),
    ):
        count = int(column[seen].sum())
        grave = int(column[where].sum()) >= limit * whole
        words = f"{count:,} {text} ({count / whole:.1%})"
        yield _Trouble(name, count, words, hides, grave, _connections(seen & (column > 0)), remedy)
    yield from _of_directions(tables, seen)
    late = (table.protocol == HTTP2) & (table.complete == 0)
    words = f"{counted(int(late.sum()), 'connection')} began before the capture"
    yield _Trouble("late_connections", int(late.sum()), words, _NAMES, False, _connections(late), _EARLY)


def _of_directions(tables: Tables, seen: Mask) -> Iterator[_Trouble]:
    """Connections of which one side's bytes were acknowledged and none of them captured."""
    unheard = tables.connections.unheard
    for bit, side in enumerate(DIRECTIONS):
        lacking = seen & (unheard & (1 << bit) != 0)
        count = int(lacking.sum())
        words = f"the capture has nothing that the {side} sent on {counted(count, 'connection')}"
        grave = 2 * count >= int(seen.sum())
        yield _Trouble(f"{side}_not_captured", count, words, _ANSWERS, grave, _connections(lacking), _BOTH_WAYS)


def _of_packets(tables: Tables, limits: Limits) -> Iterator[_Trouble]:
    capture, none = tables.capture, _connections(np.zeros(0, dtype=np.bool_))
    packets = max(1, int(capture["packets"]))
    dropped = int(capture["dropped_packets"] or 0)
    grave = dropped >= limits.dropped_packets * (packets + dropped)
    words = f"{dropped:,} packets were dropped while capturing ({dropped / (packets + dropped):.1%})"
    yield _Trouble("dropped_packets", dropped, words, _FRAMES, grave, none, _BUFFER)
    cut = int(capture["truncated_packets"])
    yield _Trouble("truncated_packets", cut, f"{cut:,} packets were cut by the snaplen", _FRAMES, False, none, _SNAPLEN)
    protocol = tables.connections.protocol
    copies = np.where((protocol == HTTP2) | (protocol == TLS), tables.connections.duplicate_packets, 0)
    twice, steps = int(copies.sum()), int(capture["time_steps_back"])
    many = limits.odd_packets * packets
    words = f"{twice:,} packets were recorded twice"
    twice = twice if twice > many else 0
    yield _Trouble("duplicate_packets", twice, words, _NOTHING, False, _connections(copies > 0), _ONE_INTERFACE)
    words = f"{counted(steps, 'step')} back in time from one packet to the next"
    yield _Trouble("time_steps_back", steps if steps > many else 0, words, _TIMES, False, none, None)


def _of_the_file(tables: Tables) -> Iterator[_Trouble]:
    capture, none = tables.capture, _connections(np.zeros(0, dtype=np.bool_))
    damaged = len(capture["damage"]) + int(capture["damage_not_listed"])
    where = f": {capture['damage'][0]['reason']}" if capture["damage"] else ""
    words = f"the file is damaged in {damaged:,} place{'s' if damaged > 1 else ''}{where}"
    yield _Trouble("damaged_places", damaged, words, "the packets there", False, none, _FINISH)
    for name, text, hides in (
        ("malformed_packets", "packets could not be read as what they claim to be", "what was in them"),
        ("unsupported_link_packets", "packets have a link type that is not supported", "what was in them"),
        ("packets_without_time", "packets carry no time of their own", _TIMES),
    ):
        count = int(capture[name])
        yield _Trouble(name, count, f"{count:,} {text}", hides, False, none, None)


_ANSWERS = "RPCs, statuses, windows and whatever waited for that side"
_FRAMES = "frames, and with them the methods, statuses and messages of some RPCs"
_NAMES = "windows, and methods and statuses whose names were sent before"
_RPCS = "all RPCs of those connections"
_TIMES = "the exact time of those packets"
_NOTHING = "nothing: each is counted once"

_SNAPLEN = Remedy("tcpdump", "-s 0", "whole packets; the file grows")
_BUFFER = Remedy("tcpdump", "-B 65536", "a capture buffer of 64 MiB, against drops; capture both directions")
_EARLY = Remedy("tcpdump", "start it before the client", "shows the opening: windows, names, round trip")
_BOTH_WAYS = Remedy("tcpdump", "tcp port N", "both directions: `dst port N` has one, as has a host with two interfaces")
_KEYS = Remedy("application", "SSLKEYLOGFILE, or tls.Config.KeyLogWriter in Go", "for a test only: it opens all of it")
_ONE_INTERFACE = Remedy("tcpdump", "-i INTERFACE instead of -i any", "each packet once")
_FINISH = Remedy("tcpdump", "end it with SIGINT and wait; -U", "the last packets are written")


def _connections(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Counts:
    return np.flatnonzero(mask).astype(np.uint32)


def _finding(tables: Tables, troubles: list[_Trouble], limits: Limits) -> Finding:
    grave = [trouble for trouble in troubles if trouble.grave]
    hidden = _hidden(tables)
    words = "; ".join(trouble.text for trouble in troubles)
    touched = sorted({int(c) for trouble in troubles for c in trouble.connections})
    consequence = "; ".join(dict.fromkeys(t.hides for t in troubles))
    unknown = ", ".join(f"{count:,} {name[5:].replace('_', ' ')}" for name, count in hidden.items() if count)
    return Finding(
        id=ID,
        title=troubles[0].text[0].upper() + troubles[0].text[1:] + (" and more" if len(troubles) > 1 else ""),
        severity="warning" if grave else "info",
        confidence="high",
        scope=Scope(tuple(touched), ()),
        lost_ns=None,
        share=None,
        metrics={trouble.name: trouble.count for trouble in troubles} | hidden,
        evidence=tuple(dict.fromkeys(e for trouble in troubles for e in _evidence(tables, trouble, limits))),
        explanation=f"What is wrong: {words}. This hides {consequence}."
        + (f" Of the RPCs are {unknown}." if unknown else "")
        + _trust(tables, hidden),
        remedies=tuple(dict.fromkeys(trouble.remedy for trouble in troubles if trouble.remedy)),
        references=("tcpdump(1)", "Paxson, Automated Packet Trace Analysis of TCP Implementations (SIGCOMM 1997)"),
        verdict=f"The capture is not whole: {words}. This hides {consequence}."
        + (" Capture again before trusting the figures." if grave else ""),
    )


def _hidden(tables: Tables) -> dict[str, int]:
    """How many RPCs lack what."""
    methods = tables.methods
    return {
        "rpcs_without_method": sum(method.rpcs for method in methods if method.name is None),
        "rpcs_without_status": sum(method.statuses[-1] for method in methods),
        "rpcs_without_end": sum(method.rpcs - method.complete for method in methods),
        "rpcs_begun_before_it": tables.begun_before,
        "rpcs_with_missing_bytes": sum(method.touch_gaps for method in methods),
    }


def _trust(tables: Tables, hidden: dict[str, int]) -> str:
    """How far the rest can be trusted where bytes are missing."""
    rpcs, touched = int(tables.connections.rpcs.sum()), hidden["rpcs_with_missing_bytes"]
    if not tables.connections.missing_bytes.any() or not rpcs:
        return ""
    return (
        f" Times, sizes and messages of the other {max(0, rpcs - touched):,} of {rpcs:,} RPCs are those of the wire. "
        "What nobody saw is counted as capture_gap and charged to nobody."
    )


def _evidence(tables: Tables, trouble: _Trouble, limits: Limits) -> Iterator[Evidence]:
    """Where it shows: a packet with that trouble, a connection's first packet, or the capture's."""
    shown = list(_places(tables, trouble))[: limits.examples]
    last = int(tables.capture["packets"])
    if trouble.name == "damaged_places" and last in [place["packet"] for place in tables.capture["damage"]]:
        shown = [Evidence(last, int(tables.capture["last_time_ns"]), f"the last packet in front of it: {trouble.text}")]
    yield from shown or [
        Evidence(1, int(tables.capture["first_time_ns"]), f"the capture's first packet; {trouble.text}")
    ]


def _places(tables: Tables, trouble: _Trouble) -> Iterator[Evidence]:
    table, problems = tables.connections, tables.problems
    if trouble.name in ("missing_bytes", "truncated_packets", "undecoded_bytes"):
        for row in range(min(2, len(problems.packet))):
            kind = tables.problem_kinds[problems.kind[row]]
            yield Evidence(int(problems.packet[row]), int(problems.time_ns[row]), kind)
    for connection in trouble.connections[:2].tolist():
        ends = f"{tables.client(connection)} to {tables.server(connection)}"
        what = f"first packet of connection {connection} ({ends}); {trouble.text}"
        yield Evidence(int(table.first_packet[connection]), int(table.first_time_ns[connection]), what)
