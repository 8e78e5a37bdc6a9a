"""The capture lacks something, and the other findings can be trusted only so far.

What it finds
-------------
Something is missing or wrong in the capture itself, so figures and findings may describe only a part of the traffic.
The report says what is missing and what that hides. A complete capture has no such finding.

It reports dropped packets, packets cut by the snaplen, bytes that were never recorded, connections with only one
direction captured, a damaged file, connections that began before the capture, TLS without keys, packets recorded
twice, packets out of the order of time, and clock steps.

How it is decided
-----------------
By counts. Missing bytes are those that acknowledgements or later segments prove to have been sent. Dropped packets
are what the file itself reports, as a share of those that its interface received and dropped. Packets that are late in
the file by up to 20 ms are sorted; those that are later are out of order, if there are more than a clock that is set
explains. One direction is missing where the other acknowledges its bytes and none of them is there; findings that need
both directions are then not given.

It is `info`, and a warning when a larger part of the bytes or packets is hidden: figures and findings then describe
only a part of the traffic. A snaplen and a late start were chosen by the person who captured: what they hide is
`info`. More than one packet in a hundred out of order is a warning: what depends on the order may be wrong. RPCs
without missing bytes keep their times and sizes, and the report counts them. Packets recorded twice and clock steps
are reported when they are more than one in a hundred; the analysis handles both.

When it cannot tell
-------------------
A classic pcap file does not say how many packets were dropped. Connections that the capture lacks altogether leave
no trace in it. A cut that falls outside of TCP payload hides nothing and is not reported.

What would refute it
--------------------
Another capture of the same traffic, taken with the settings below, gives the same figures.

What to do
----------
Capture again:

- `tcpdump -s 0` records whole packets, and `-B 65536` uses a larger buffer against drops.
- Begin before the first connection is opened.
- Put packets that are out of order into the order of time with `reordercap in.pcap out.pcap`, a part of Wireshark.
- Capture both directions on one interface, and not `-i any` where packets pass twice.
- End with SIGINT and wait for tcpdump to finish.
- For TLS record the key log (`SSLKEYLOGFILE`, or Go's `tls.Config.KeyLogWriter`).

References
----------
- tcpdump(1): -s, -B, -U
- pcapng: Interface Statistics Block (dropped packets), Decryption Secrets Block
- Paxson, Automated Packet Trace Analysis of TCP Implementations (SIGCOMM 1997): errors of packet filters
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ..facts.evidence import FEW_EXAMPLES, show_packet
from ..facts.ratings import is_unsorted
from ..model.analysis import Analysis
from ..model.detector import About
from ..model.finding import Evidence, Finding, Remedy, Scope, Skipped
from ..model.text import count
from ..summary.figures import HTTP2, TLS, may_have_rpcs, still_encrypted
from ..tables import DIRECTIONS, Counts, Mask, Tables

ID = "capture-quality"


def _write_figure(analysis: Analysis) -> str:
    quality, dropped = analysis.quality, analysis.capture.dropped_packets
    drops = "" if dropped is None else f", {count(dropped, 'packet')} dropped while capturing"
    return (
        f"{count(quality.missing_bytes, 'byte')} of payload missing, {quality.truncated_packets:,} cut packets{drops}"
    )


ABOUT = About(
    example="recorded/wild/grpc-js-upload-drops.pcap.zst",
    figure=_write_figure,
    one_direction=True,
    judges_capture=True,
    picture="none",
)


class Limits(Struct, frozen=True, eq=False):
    hidden_bytes: float = 0.05
    """A warning from this share of payload bytes missing or not readable (heuristic: one in twenty)."""
    encrypted_bytes: float = 0.50
    """A warning from this share of payload bytes encrypted (heuristic: more than is readable)."""
    dropped_packets: float = 0.01
    """A warning from this share of packets dropped (heuristic: as a loss it would slow TCP itself)."""
    odd_packets: float = 0.01
    """Reported from this share of packets recorded twice or going back in time (heuristic: one in 100)."""


class _Problem(Struct, frozen=True, eq=False):
    """One problem of the capture; `grave` when it hides too large a share of the bytes or packets."""

    name: str
    count: int
    text: str
    hides: str
    grave: bool
    connections: Counts
    remedy: Remedy | None


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about everything that is wrong with the capture."""
    problems = [problem for problem in _find_problems(tables, limits) if problem.count]
    if problems:
        yield _make_finding(tables, sorted(problems, key=_rank))


def _rank(problem: _Problem) -> tuple[bool, bool]:
    """Rank a wrong order first, which makes bytes appear missing, then by what hides too much."""
    return problem.name != "unsorted_packets", not problem.grave


def _find_problems(tables: Tables, limits: Limits) -> Iterator[_Problem]:
    yield from _check_bytes(tables, limits)
    yield from _check_packets(tables, limits)
    yield from _check_file(tables)


def _check_bytes(tables: Tables, limits: Limits) -> Iterator[_Problem]:
    table = tables.connections
    seen = may_have_rpcs(table.protocol) | (table.protocol == TLS)
    whole = max(1, int(table.payload_bytes[seen].sum()) + int(table.missing_bytes[seen].sum()))
    cut = bool(tables.capture["truncated_packets"])
    gap, most, half = _SNAPLEN if cut else _BUFFER, limits.hidden_bytes, limits.encrypted_bytes
    unmeant = seen & (table.complete == 1) & (not cut)
    yield from _check_directions(tables, seen)  # they say why bytes are missing
    for name, column, text, hides, remedy, where, limit in (
        ("missing_bytes", table.missing_bytes, "bytes of TCP payload are missing", _FRAMES, gap, unmeant, most),
        ("undecoded_bytes", table.undecoded_bytes, "bytes of HTTP/2 could not be read", _FRAMES, gap, unmeant, most),
        ("encrypted_bytes", still_encrypted(tables), "bytes are TLS that was not decrypted", _RPCS, _KEYS, seen, half),
    ):
        number = int(column[seen].sum())
        grave = int(column[where].sum()) >= limit * whole
        words = f"{number:,} {text} ({number / whole:.1%})"
        yield _Problem(name, number, words, hides, grave, _list_connections(seen & (column > 0)), remedy)
    late = (table.protocol == HTTP2) & (table.complete == 0)
    words = f"{count(int(late.sum()), 'connection')} began before the capture"
    yield _Problem("late_connections", int(late.sum()), words, _NAMES, False, _list_connections(late), _EARLY)


def _check_directions(tables: Tables, seen: Mask) -> Iterator[_Problem]:
    """Yield, for each side, the connections whose bytes were acknowledged but not captured."""
    unheard = tables.connections.unheard
    for bit, side in enumerate(DIRECTIONS):
        lacking = seen & (unheard & (1 << bit) != 0)
        number = int(lacking.sum())
        words = f"the capture has no data from the {side} on {count(number, 'connection')}"
        grave = 2 * number >= int(seen.sum())
        remedy = _capture_both_ways("src" if side == "client" else "dst")
        yield _Problem(f"{side}_not_captured", number, words, _ANSWERS, grave, _list_connections(lacking), remedy)


def _check_packets(tables: Tables, limits: Limits) -> Iterator[_Problem]:
    capture, none = tables.capture, _list_connections(np.zeros(0, dtype=np.bool_))
    packets = max(1, int(capture["packets"]))
    dropped = int(capture["dropped_packets"] or 0)
    # the file may hold a part of what was captured
    received = capture["received_packets"]
    whole = dropped + (packets if received is None else int(received))
    grave = dropped >= limits.dropped_packets * whole
    words = f"{dropped:,} of {whole:,} packets were dropped while capturing ({dropped / whole:.1%})"
    yield _Problem("dropped_packets", dropped, words, _FRAMES, grave, none, _BUFFER)
    cut = int(capture["truncated_packets"])
    yield _Problem("truncated_packets", cut, f"{cut:,} packets were cut by the snaplen", _FRAMES, False, none, _SNAPLEN)
    protocol = tables.connections.protocol
    copies = np.where(may_have_rpcs(protocol) | (protocol == TLS), tables.connections.duplicate_packets, 0)
    twice, steps = int(copies.sum()), int(capture["time_steps_back"])
    many = limits.odd_packets * packets
    words = f"{twice:,} packets were recorded twice"
    twice = twice if twice > many else 0
    yield _Problem("duplicate_packets", twice, words, _NOTHING, False, _list_connections(copies > 0), _ONE_INTERFACE)
    words = f"timestamps go backwards at {count(steps, 'packet')}"
    if is_unsorted(tables):
        yield _Problem("unsorted_packets", steps, words, _ORDER, True, none, _REORDER)
    else:
        yield _Problem("time_steps_back", steps if steps > many else 0, words, _TIMES, False, none, None)


def _check_file(tables: Tables) -> Iterator[_Problem]:
    capture, none = tables.capture, _list_connections(np.zeros(0, dtype=np.bool_))
    damaged = len(capture["damage"]) + int(capture["damage_not_listed"])
    where = f": {capture['damage'][0]['reason']}" if capture["damage"] else ""
    words = f"the file is damaged in {damaged:,} place{'s' if damaged > 1 else ''}{where}"
    yield _Problem("damaged_places", damaged, words, "the packets there", False, none, _FINISH)
    for name, text, hides in (
        ("malformed_packets", "packets are malformed", "what was in them"),
        ("unsupported_link_packets", "packets have a link type that is not supported", "what was in them"),
        ("packets_without_time", "packets have no timestamp", _TIMES),
    ):
        count = int(capture[name])
        yield _Problem(name, count, f"{count:,} {text}", hides, False, none, None)


_ANSWERS = "RPCs, statuses, windows and everything that depends on that side"
_FRAMES = "frames, and with them methods, statuses and messages of some RPCs"
_NAMES = "windows, and methods and statuses whose names were sent before the capture"
_RPCS = "all RPCs of those connections"
_TIMES = "the exact time of those packets"
_ORDER = "the order of those packets, and with it causes, losses and connections"
_NOTHING = "nothing, because each is counted once"

_SNAPLEN = Remedy("tcpdump", "-s 0", "whole packets; the file grows")
_BUFFER = Remedy("tcpdump", "-B 65536", "a capture buffer of 64 MiB, against drops; capture both directions")
_EARLY = Remedy("tcpdump", "start it before the client", "records the opening: windows, names, round trip")
_KEYS = Remedy(
    "application",
    "SSLKEYLOGFILE, or tls.Config.KeyLogWriter in Go",
    "for tests only: the keys decrypt all of the traffic",
)
_ONE_INTERFACE = Remedy("tcpdump", "-i INTERFACE instead of -i any", "each packet once")
_REORDER = Remedy(
    "wireshark", "reordercap in.pcap out.pcap", "packets in the order of their times; then analyze out.pcap"
)
_FINISH = Remedy("tcpdump", "end it with SIGINT and wait; -U", "the last packets are written")


def _capture_both_ways(end: str) -> Remedy:
    why = f"both directions; `{end} port N` captures only one, as may a host with two interfaces"
    return Remedy("tcpdump", "tcp port N", why)


def _list_connections(mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Counts:
    return np.flatnonzero(mask).astype(np.uint32)


def _make_finding(tables: Tables, problems: list[_Problem]) -> Finding:
    grave = [problem for problem in problems if problem.grave]
    hidden = _count_hidden(tables)
    words = "; ".join(problem.text for problem in problems)
    touched = sorted({int(c) for problem in problems for c in problem.connections})
    consequence = "; ".join(dict.fromkeys(t.hides for t in problems))
    unknown = ", ".join(f"{count:,} {name[5:].replace('_', ' ')}" for name, count in hidden.items() if count)
    more = f", and {count(len(problems) - 1, 'more problem')}" if len(problems) > 1 else ""
    return Finding(
        id=ID,
        title=problems[0].text[0].upper() + problems[0].text[1:] + (" and more" if len(problems) > 1 else ""),
        severity="warning" if grave else "info",
        confidence="high",
        scope=Scope(tuple(touched), ()),
        metrics={problem.name: problem.count for problem in problems} | hidden,
        evidence=tuple(dict.fromkeys(e for problem in problems for e in _show_problem(tables, problem))),
        explanation=f"Problems of the capture: {words}. They hide {consequence}."
        + (f" Affected RPCs: {unknown}." if unknown else "")
        + _explain_trust(tables, hidden),
        remedies=tuple(dict.fromkeys(problem.remedy for problem in problems if problem.remedy)),
        references=("tcpdump(1)", "Paxson, Automated Packet Trace Analysis of TCP Implementations (SIGCOMM 1997)"),
        verdict=f"A problem of the capture: {problems[0].text}{more}. "
        + (_ask_again(problems[0]) if grave else f"This hides {problems[0].hides}."),
    )


def _ask_again(problem: _Problem) -> str:
    if problem.remedy is _REORDER:
        return f"Sort it before trusting the figures: {_REORDER.knob}."
    return "Capture again before trusting the figures."


def _count_hidden(tables: Tables) -> dict[str, int]:
    """Count RPCs by what the capture lacks of them."""
    methods = tables.methods
    return {
        "rpcs_without_method": sum(method.rpcs for method in methods if method.name is None),
        "rpcs_without_status": sum(method.statuses[-1] for method in methods),
        "rpcs_without_end": sum(method.rpcs - method.complete for method in methods),
        "rpcs_begun_before_it": tables.begun_before,
        "rpcs_with_missing_bytes": sum(method.touch_gaps for method in methods),
    }


def _explain_trust(tables: Tables, hidden: dict[str, int]) -> str:
    """Say how far the rest can be trusted where bytes are missing."""
    rpcs, touched = int(tables.connections.rpcs.sum()), hidden["rpcs_with_missing_bytes"]
    if not tables.connections.missing_bytes.any() or not rpcs:
        return ""
    exact = f" Times, sizes and messages of the other {rpcs - touched:,} of {rpcs:,} RPCs are exact."
    return (
        f"{exact if rpcs > touched else ''} "
        "Time that the capture does not show is counted as capture_gap, not as another cause."
    )


def _show_problem(tables: Tables, problem: _Problem) -> Iterator[Evidence]:
    """Yield packets that show the problem: one with it, a connection's first packet, or the capture's."""
    shown = list(_find_places(tables, problem))[:FEW_EXAMPLES]
    last = int(tables.capture["packets"])
    if problem.name == "damaged_places" and last in [place["packet"] for place in tables.capture["damage"]]:
        shown = [
            Evidence(last, int(tables.capture["last_time_ns"]), f"the last packet before the damage: {problem.text}")
        ]
    yield from shown or [
        Evidence(1, int(tables.capture["first_time_ns"]), f"the capture's first packet; {problem.text}")
    ]


def _find_places(tables: Tables, problem: _Problem) -> Iterator[Evidence]:
    table, rows = tables.connections, tables.problems
    if problem.name == "unsorted_packets":
        for packet, time_ns in tables.capture["too_late_packets"]:
            yield Evidence(packet, time_ns, "its time is more than 20 ms before that of a packet that comes earlier")
    if problem.name in ("missing_bytes", "truncated_packets", "undecoded_bytes"):
        for row in range(min(2, len(rows.packet))):
            kind = tables.problem_kinds[rows.kind[row]]
            yield show_packet(rows, "packet", row, kind)
    for connection in problem.connections[:2].tolist():
        ends = f"{tables.client(connection)} to {tables.server(connection)}"
        what = f"first packet of connection {connection} ({ends}); {problem.text}"
        yield show_packet(table, "first_packet", connection, what)
