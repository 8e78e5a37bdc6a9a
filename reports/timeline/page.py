"""Draw events in order of time: client frames point right, server frames left, with blocked intervals and silences."""

import re
import textwrap
from collections.abc import Iterator
from collections.abc import Sequence as Items
from itertools import groupby

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ...analyzer import _core
from ...analyzer.model.budget import CAUSES
from ...analyzer.model.text import count, duration, safe, size
from ...analyzer.tables import DIRECTIONS, NOT_SEEN, PROTOCOLS, WINDOW_NOT_KNOWN, Counts, Ints, Tables
from ...analyzer.tables.durations import total_ns
from ...analyzer.views.events import ACK, BURST, FIN, RST, SILENCE, SYN, WAIT, Sequence, steps
from ...analyzer.views.excerpt import Excerpt
from ..shared.drawing import CAUSE_STYLES, NARROW

_MOST_STREAMS = 4
_USUAL_ACKS = 2
_LONGEST = 5
UNKNOWN_METHOD = "method not readable"
_UNIT = re.compile(r"(?<=\d) (?=(?:[kMG]?B|s|ms|µs|ns|packets?|frames?|RPCs?|events?|times)\b)")
_LEGEND = (
    "!! blocked interval, ~~ silence of both sides; DATA.. continues later, ..DATA began earlier, END is END_STREAM; "
    "[n] is stream n. Lanes: maximum of bytes in flight, minimum of each window, which limits what the other side "
    "sends; congestion windows (estimates), stream and connection windows are known only at the start of blocked "
    "intervals"
)
_END_STREAM = 1
_NAMES = [*_core.FRAME_TYPES, "UNKNOWN"]
STYLES = (CAUSE_STYLES["client"], CAUSE_STYLES["server"])
"""Colours of the client's and the server's bytes."""


class Page:
    """The events of an excerpt, drawn for a width."""

    def __init__(self, excerpt: Excerpt, events: Sequence, width: int) -> None:
        """Compute the widths of the columns."""
        self.excerpt, self.sequence, self.width = excerpt, events, width
        self.zero = excerpt.tables.capture["first_time_ns"] or 0
        self.when = max(len(self.time(excerpt.end_ns)), 10)
        last = int(excerpt.packets.packet[-1]) if len(excerpt.packets.packet) else 0
        # packet numbers get a column where the width allows it
        self.numbers = 0 if width < NARROW else max(2 * len(str(last)) + 2, 9)
        self.inner = width - self.when - self.numbers - (6 if self.numbers else 4)
        rpcs = excerpt.tables.rpcs
        rows = np.flatnonzero(rpcs.connection == excerpt.connection)
        self.by_start = rows[np.argsort(rpcs.first_packet[rows], kind="stable")]
        self.by_end = rows[np.argsort(rpcs.last_packet[rows], kind="stable")]
        self.starts, self.ends = rpcs.first_packet[self.by_start], rpcs.last_packet[self.by_end]
        self._method_names = {m.number: safe(m.name or m.label or UNKNOWN_METHOD) for m in excerpt.tables.methods}

    def sum_by_cause(self, rows: Ints) -> list[str]:
        """Count the blocked intervals of each cause and sum their durations, the longest first."""
        waits = self.sequence.waits
        sums = []
        for cause in np.unique(waits.cause[rows]):
            same = rows[waits.cause[rows] == cause]
            sums.append((total_ns(waits.duration_ns[same]), f"{len(same):,} {CAUSES[cause]}"))
        return [f"{text} {duration(ns)}" for ns, text in sorted(sums, reverse=True)]

    def axis(self) -> Text:
        """Draw the names of the columns."""
        lane = "client" + " " * (self.inner - 10) + "server"
        packets = f"  {'packets':<{self.numbers}}" if self.numbers else ""
        return Text(f" {'time s':>{self.when}}{packets} {lane}", style="bold")

    def legend(self) -> list[Text]:
        """Explain the marks."""
        return [Text(), *self._wrap(_LEGEND, "", "dim")]

    # the events

    def events(self, limit: int) -> Iterator[Text]:
        """Draw the events in at most about `limit` lines, and say what was left out."""
        shape = self.sequence.shape
        if not len(shape):
            yield Text("no packets with data in this range", style="dim")
            return
        drawn = 0
        every = ((n, n + 1, 0) for n in range(len(shape)))
        folded = ((step.start, step.stop, step.repeats) for step in steps(shape))
        for start, stop, repeats in every if limit == 0 else folded:
            lines = self.fold(start, stop, repeats) if repeats else self.event(start)
            if limit and drawn + len(lines) > limit:
                yield from self._summarize_rest(start)
                return
            yield from lines
            drawn += len(lines)
        yield from self.open_at_end()

    def _summarize_rest(self, event: int) -> list[Text]:
        """Summarize what the limit left out: how much, where it continues, and the longest blocked intervals."""
        at, left = self.time(self._locate(event)[0]), len(self.sequence.shape)
        kinds = "more burst, blocked interval or silence", "more bursts, blocked intervals and silences"
        lines = self._wrap(f"... {count(left - event, *kinds)}: {self._summarize(event, left)}", "    ")
        lines += self._wrap(f"    --from {at} continues here, --limit 0 draws everything", "    ")
        waits, rest = self.sequence.waits, self.sequence.row[event:][self.sequence.kind[event:] == WAIT]
        longest = rest[np.argsort(-waits.duration_ns[rest], kind="stable")][:_LONGEST]
        texts = []
        for w in longest:
            length, start = duration(int(waits.duration_ns[w])), self.time(int(waits.start_time_ns[w]))
            texts.append(f"{length} {CAUSES[int(waits.cause[w])]} from {start} s")
        if texts:
            lines += self._wrap(f"    longest blocked intervals left out: {', '.join(texts)}", "    ")
        return lines

    def event(self, event: int) -> list[Text]:
        """Draw one event."""
        kind, row = int(self.sequence.kind[event]), int(self.sequence.row[event])
        return {BURST: self.burst, WAIT: self.wait, SILENCE: self.silence}[kind](row)

    def fold(self, start: int, stop: int, repeats: int) -> list[Text]:
        """Draw a run of repetitions as one summary."""
        first, last = self._locate(start), self._locate(stop - 1)
        like = (stop - start) // repeats
        above = "the line above" if like == 1 else f"the {like} lines above"
        text = f"{repeats:,} repetitions of {above}, until {self.time(last[1])} s: {self._summarize(start, stop)}"
        lines = _fill(self._add_numbers(text, first[2], last[3]), self.inner - 5)
        rows = [self._draw_row(first[0], first[2], last[3], f"  : {lines[0]}", "dim", sides="::")]
        return rows + [self._draw_row(None, None, None, f"  : {line}", "dim", sides="::") for line in lines[1:]]

    def _summarize(self, start: int, stop: int) -> str:
        """Sum the packets, bytes, RPCs, blocked intervals and silence of some events."""
        kinds, rows = self.sequence.kind[start:stop], self.sequence.row[start:stop]
        bursts, burst_rows = self.sequence.bursts, rows[kinds == BURST]
        parts = []
        for number, name in enumerate(DIRECTIONS):
            side = burst_rows[bursts.direction[burst_rows] == number]
            if len(side):
                packets, payload = int(bursts.packets[side].sum()), int(bursts.bytes[side].sum())
                parts.append(f"{name} {count(packets, 'packet')} {size(payload)}")
        first, last = self._locate(start)[2], self._locate(stop - 1)[3]
        rpcs = int(np.searchsorted(self.starts, last, side="right") - np.searchsorted(self.starts, first))
        parts += [f"{count(rpcs, 'RPC')} started"] if rpcs and self.excerpt.stream is None else []
        intervals = self.sum_by_cause(rows[kinds == WAIT])
        parts += [f"blocked {', '.join(intervals)}"] if intervals else []
        silent = total_ns(self.sequence.silences.duration_ns[rows[kinds == SILENCE]])
        return "; ".join([*parts, *([f"silent {duration(silent)}"] if silent else [])])

    def burst(self, row: int) -> list[Text]:
        """Draw a burst as an arrow with its frames, and the RPCs that start or end in it."""
        bursts = self.sequence.bursts
        side = int(bursts.direction[row])
        packets, payload = int(bursts.packets[row]), int(bursts.bytes[row])
        meta = f"{payload:,} B" if packets == 1 else f"{packets:,} packets, {payload:,} B"
        if bursts.retransmissions[row]:
            meta += f", {int(bursts.retransmissions[row]):,} retransmitted"
        lasted = int(bursts.last_time_ns[row]) - int(bursts.first_time_ns[row])
        if lasted >= 1_000_000:
            meta += f", {duration(lasted)}"
        first, last = int(bursts.first_packet[row]), int(bursts.last_packet[row])
        what = self._add_numbers(self._name_frames(row) or self._name_packets(row), first, last)
        texts = [f"{what}  ({meta})" if payload else what]
        if len(texts[0]) > self.inner - 6:
            texts = [*_fill(what, self.inner - 6), *(_fill(f"({meta})", self.inner - 6) if payload else ())]
        arrow = self._draw_arrow(texts[0], side)
        lines = [self._draw_row(int(bursts.first_time_ns[row]), first, last, arrow, STYLES[side])]
        lines += [self._draw_row(None, None, None, self._align(text, side), STYLES[side]) for text in texts[1:]]
        notes = [line for note in self._list_rpcs(first, last, side) for line in _fill(note, self.inner - 2)]
        return lines + [self._draw_row(None, None, None, self._align(line, side), "bold") for line in notes]

    def wait(self, row: int) -> list[Text]:
        """Draw a blocked interval: its cause, the bytes left to send, the windows, and the packets."""
        waits = self.sequence.waits
        cause, side = CAUSES[int(waits.cause[row])], DIRECTIONS[int(waits.direction[row])]
        peer = DIRECTIONS[1 - int(waits.direction[row])]
        windows = [("in flight", int(waits.in_flight_bytes[row]), -1)]
        windows += [("congestion window", int(waits.congestion_window_bytes[row]), -1)]
        windows += [(f"{peer}'s windows: receive", int(waits.receive_window_bytes[row]), -1)]
        windows += [("stream", int(waits.stream_window_bytes[row]), WINDOW_NOT_KNOWN)]
        windows += [("connection", int(waits.connection_window_bytes[row]), WINDOW_NOT_KNOWN)]
        released = int(waits.released_by_packet[row])
        path = f"stopped #{int(waits.stopped_at_packet[row])} -> "
        path += f"released by #{released} -> " if released else ""
        path += f"resumed #{int(waits.resumed_at_packet[row])}"
        of = "" if int(waits.stream[row]) == self.excerpt.stream else f" of stream {int(waits.stream[row])}"
        head = f"BLOCKED {duration(int(waits.duration_ns[row]))}: {cause}"
        left = int(waits.owed_bytes[row])
        owed = f"{side} still has to send {f'{left:,} B' if left else 'the next frame'}{of};"
        known = ", ".join(f"{name} {value:,}" for name, value, unknown in windows if value != unknown)
        style = f"bold {CAUSE_STYLES.get(cause, '')}".strip()
        return self._draw_marked("!!", (head, f"{owed} {known} B", path), int(waits.start_time_ns[row]), style)

    def silence(self, row: int) -> list[Text]:
        """Draw a silence: its length, and the open RPCs."""
        silences = self.sequence.silences
        open_rpcs, others = int(silences.open_rpcs[row]), int(silences.acks[row])
        text = f"silence {duration(int(silences.duration_ns[row]))}, "
        text += "no RPC open" if not open_rpcs else f"{count(open_rpcs, 'RPC')} open"
        if others > _USUAL_ACKS:
            text += (
                f", {count(others, 'packet')} {'without data' if self.excerpt.stream is None else 'of other streams'}"
            )
        return self._draw_marked("~~", (text,), int(silences.start_time_ns[row]), "dim")

    def open_at_end(self) -> list[Text]:
        """Draw the RPCs that were open at the capture's end, or at their client's FIN or RST."""
        o, drawn = self.excerpt.tables.open_rpcs, self.excerpt
        here = (o.last_time_ns <= drawn.end_ns) & (o.start_time_ns >= drawn.start_ns)
        here &= (o.connection == drawn.connection) & np.isin(o.stream, drawn.stream or o.stream)
        lines = []
        for side, name in enumerate(DIRECTIONS):
            rows = np.flatnonzero(here & (o.waits_for == side))
            if len(rows):
                row = rows[np.argmin(o.since_time_ns[rows])]
                longest = duration(int(o.end_time_ns[row]) - int(o.since_time_ns[row]))
                rpcs = f"{count(len(rows), 'RPC')} {_format_streams(np.sort(o.stream[rows]).tolist())}"
                text = f"{rpcs} open at the end, waiting for the {name}, the longest for {longest}"
                cause = CAUSES[int(o.cause[row])]
                text += f" ({cause})" if cause.endswith("_window") else ""
                lines += self._draw_marked("~~", (text,), int(o.end_time_ns[rows].max()), "bold")
        return lines

    # parts of lines

    def _draw_marked(self, mark: str, texts: Items[str], at: int, style: str) -> list[Text]:
        """Draw lines after a mark; the first line has the time."""
        lines = [line for text in texts for line in _fill(text, self.inner - 5)]
        return [
            self._draw_row(None if number else at, None, None, f" {mark} {line}", style)
            for number, line in enumerate(lines)
        ]

    def _draw_row(
        self, at: int | None, first: int | None, last: int | None, lane: str, style: str, sides: str = "||"
    ) -> Text:
        when = "" if at is None else self.time(at)
        packets = "" if first is None or last is None else _format_packets(first, last)
        numbers = f"  {packets:<{self.numbers}}" if self.numbers else ""
        line = Text(f" {when:>{self.when}}{numbers} {sides[0]}")
        line.append(set_cell_size(lane, self.inner), style=style)
        line.append(sides[1])
        return line

    def _add_numbers(self, text: str, first: int, last: int) -> str:
        """Add packet numbers to a text when they have no column."""
        return text if self.numbers else f"{_format_packets(first, last)} {text}"

    def _draw_arrow(self, text: str, side: int) -> str:
        room = self.inner - len(text) - 2
        return f" {text} " + "─" * (room - 1) + ">" if side == 0 else "<" + "─" * (room - 1) + f" {text} "

    def _align(self, text: str, side: int) -> str:
        return f" {text}" if side == 0 else " " * (self.inner - cell_len(text) - 1) + text

    def _name_frames(self, row: int) -> str:
        """Name the frames with bytes in a burst; dots mark frames that began earlier or continue later."""
        bursts, frames = self.sequence.bursts, self.excerpt.frames
        begin, end = int(bursts.frames_from[row]), int(bursts.frames_to[row])
        rows = self.sequence.frame_rows[int(bursts.direction[row])][begin:end]
        first, last = int(bursts.first_packet[row]), int(bursts.last_packet[row])
        rows = rows[(frames.first_packet[rows] <= last) & (frames.last_packet[rows] >= first)]
        if len(rows) > 64:
            return self._count_frames(rows)
        names = []
        for frame in rows:
            stream = int(frames.stream[frame])
            name = _NAMES[min(int(frames.kind[frame]), len(_NAMES) - 1)]
            flags = int(frames.flags[frame])
            name += " ACK" if name in ("SETTINGS", "PING") and flags & 1 else ""
            name += f"[{stream}]" if stream else ""
            name = f"..{name}" if frames.first_packet[frame] < first else name
            if frames.last_packet[frame] > last:
                name += ".."
            elif name.lstrip(".").startswith(("DATA", "HEADERS")) and flags & _END_STREAM:
                name += " END"
            names.append(name)
        runs = [(name, len(list(same))) for name, same in groupby(names)]
        text = " ".join(name if n == 1 else f"{name} x{n}" for name, n in runs)
        return text if len(text) <= self.inner else self._count_frames(rows)

    def _count_frames(self, rows: Ints) -> str:
        frames = self.excerpt.frames
        kinds = np.bincount(np.minimum(frames.kind[rows], len(_NAMES) - 1), minlength=len(_NAMES))
        text = " ".join(f"{name} x{n}" if n > 1 else name for name, n in zip(_NAMES, kinds.tolist(), strict=True) if n)
        streams = np.unique(frames.stream[rows])
        return f"{text} {_format_streams(streams[streams > 0].tolist())}".rstrip()

    def _name_packets(self, row: int) -> str:
        bursts = self.sequence.bursts
        flags, payload = int(bursts.flags[row]), int(bursts.bytes[row])
        names = [name for bit, name in ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST")) if flags & bit]
        if names:
            return " ".join([*names, "ACK"] if flags & SYN and flags & ACK else names)
        if bursts.retransmissions[row] == bursts.packets[row]:
            return self._describe_retransmission(row)
        connections, connection = self.excerpt.tables.connections, self.excerpt.connection
        protocol = PROTOCOLS[connections.protocol[connection]]
        if protocol != "http2":
            return "TLS" if protocol == "tls" else "bytes"
        preface = bursts.offset[row] == 0 and bursts.direction[row] == 0 and connections.complete[connection]
        return "connection preface" if preface and payload == 24 else "part of a frame"

    def _describe_retransmission(self, row: int) -> str:
        """Say which packet of the range had the bytes that a burst retransmits, and how long before."""
        bursts, packets = self.sequence.bursts, self.excerpt.packets
        number, offset = int(bursts.first_packet[row]), int(bursts.offset[row])
        same = (packets.direction == bursts.direction[row]) & (packets.packet < number) & (packets.seq <= offset)
        sent = np.flatnonzero(same & (packets.seq + packets.payload_bytes > offset))
        if not len(sent):
            return "retransmitted bytes"
        before = duration(int(bursts.first_time_ns[row]) - int(packets.time_ns[sent[0]]))
        return f"retransmits bytes of #{int(packets.packet[sent[0]])}, sent {before} before"

    def _list_rpcs(self, first: int, last: int, side: int) -> list[str]:
        """Say which RPCs start and end in a burst."""
        begun = self._select_rpcs(self.by_start, self.starts, first, last) if side == 0 else []
        ended = self._select_rpcs(self.by_end, self.ends, first, last)
        return [*([self._describe_starts(begun)] if begun else []), *([self._describe_ends(ended)] if ended else [])]

    def _select_rpcs(self, rows: Ints, packets: Counts, first: int, last: int) -> list[int]:
        """Select the RPCs among `rows` whose packet is in a burst."""
        begin, end = np.searchsorted(packets, [first, last + 1])
        found: list[int] = rows[begin:end].tolist()
        stream = self.excerpt.stream
        return found if stream is None else [r for r in found if self.excerpt.tables.rpcs.stream[r] == stream]

    def _describe_starts(self, rows: Items[int]) -> str:
        rpcs = self.excerpt.tables.rpcs
        numbers = list(dict.fromkeys(int(rpcs.method[r]) for r in rows))
        more = f" and {len(numbers) - 1} more" if len(numbers) > 1 else ""
        begin = f"{_name_rpcs([int(rpcs.stream[r]) for r in rows])} start{'s' if len(rows) == 1 else ''}"
        return f"{begin}: {self._method_names.get(numbers[0], UNKNOWN_METHOD)}{more}"

    def _describe_ends(self, rows: Items[int]) -> str:
        rpcs = self.excerpt.tables.rpcs
        codes: dict[int, int] = {}
        for r in rows:
            codes[int(rpcs.status[r])] = codes.get(int(rpcs.status[r]), 0) + 1
        named = {("status unknown" if code == NOT_SEEN else _core.STATUSES[code]): n for code, n in codes.items()}
        statuses = ", ".join(name if len(named) == 1 else f"{n} {name}" for name, n in named.items())
        took = sorted(
            {duration(int(ns)): int(ns) for ns in (rpcs.duration_ns[r] for r in rows)}.items(), key=lambda x: x[1]
        )
        span = took[0][0] if len(took) == 1 else f"{took[0][0]} to {took[-1][0]}"
        names = _name_rpcs([int(rpcs.stream[r]) for r in rows])
        return f"{names} end{'s' if len(rows) == 1 else ''}: {statuses} after {span}"

    def _locate(self, event: int) -> tuple[int, int, int, int]:
        """Give the first and last time, and the first and last packet of an event."""
        kind, row = int(self.sequence.kind[event]), int(self.sequence.row[event])
        if kind == BURST:
            b = self.sequence.bursts
            return (
                int(b.first_time_ns[row]),
                int(b.last_time_ns[row]),
                int(b.first_packet[row]),
                int(b.last_packet[row]),
            )
        if kind == WAIT:
            w = self.sequence.waits
            start = int(w.start_time_ns[row])
            stopped = int(w.stopped_at_packet[row])
            return start, start + int(w.duration_ns[row]), stopped, stopped
        s = self.sequence.silences
        start, before = int(s.start_time_ns[row]), int(s.before_packet[row])
        return start, start + int(s.duration_ns[row]), before, before

    def time(self, ns: int) -> str:
        """Format a time in seconds since the first packet."""
        return f"{(ns - self.zero) / 1e9:.6f}"

    def _wrap(self, text: str, indent: str, style: str = "") -> list[Text]:
        return wrapped(text, self.width, indent, style)


def _format_packets(first: int, last: int) -> str:
    return f"#{first}" if first == last else f"#{first}-{last}"


def method_name(tables: Tables, number: int) -> str:
    """Name a method by its number, with harmless characters only."""
    found = next((method for method in tables.methods if method.number == number), None)
    return safe((found and (found.name or found.label)) or UNKNOWN_METHOD)


def wrapped(text: str, width: int, indent: str, style: str = "") -> list[Text]:
    """Wrap a text; all lines but the first are indented."""
    return [Text(line, style=style) for line in _fill(text, width, indent=indent)]


def _fill(text: str, width: int, *, indent: str = "") -> list[str]:
    """Wrap a text without splitting a number from its unit; characters two columns wide count as two."""
    if len(text) <= width and text.isascii() and text.isprintable():
        return [text.rstrip()] if text.strip() else []
    spaced = "".join(c + "\0" * (cell_len(c) - 1) for c in _UNIT.sub("\xa0", text))
    lines = textwrap.wrap(spaced, width, subsequent_indent=indent)
    return [line.replace("\xa0", " ").replace("\0", "") for line in lines]


def _format_streams(streams: Items[int]) -> str:
    if len(streams) > _MOST_STREAMS:
        return f"[{streams[0]}..{streams[-1]}]"
    return f"[{','.join(map(str, streams))}]" if streams else ""


def _name_rpcs(streams: Items[int]) -> str:
    streams = sorted(streams)
    return f"RPC {streams[0]}" if len(streams) == 1 else f"{len(streams):,} RPCs {_format_streams(streams)}"
