"""A trace parsed back: its tracks and events with the texts that it interns."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor, TrackEvent

BEGIN, END, INSTANT, COUNTER = (
    TrackEvent.TYPE_SLICE_BEGIN,
    TrackEvent.TYPE_SLICE_END,
    TrackEvent.TYPE_INSTANT,
    TrackEvent.TYPE_COUNTER,
)


@dataclass
class Event:
    """A slice, instant or value; `end` is that of a slice."""

    kind: int
    track: int
    at: int
    name: str = ""
    category: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    value: int = 0
    starts: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()
    end: int = -1
    parent: Event | None = None

    @property
    def duration(self) -> int:
        return self.end - self.at


@dataclass
class Parsed:
    tracks: dict[int, TrackDescriptor]
    events: list[Event]
    clocks: dict[int, int]

    def name(self, track: int) -> str:
        return str(self.tracks[track].name)

    def of(self, category: str) -> list[Event]:
        return [event for event in self.events if event.category == category]

    def values(self, name: str) -> list[tuple[int, int]]:
        """What the counters of that name show, with their times."""
        return [(e.at, e.value) for e in self.events if e.kind == COUNTER and self.name(e.track) == name]


class _Texts:
    """Interned texts; asking for one that was not told fails."""

    def __init__(self) -> None:
        self.known: dict[str, dict[int, str]] = defaultdict(dict)

    def add(self, data: Any) -> None:
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            for entry in getattr(data, kind):
                assert entry.iid not in self.known[kind]
                self.known[kind][entry.iid] = entry.name
        for entry in data.debug_annotation_string_values:
            self.known["strings"][entry.iid] = entry.str.decode()

    def notes(self, annotations: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for note in annotations:
            name = self.known["debug_annotation_names"][note.name_iid]
            assert name not in found
            if note.dict_entries:
                found[name] = self.notes(note.dict_entries)
            elif note.HasField("string_value_iid"):
                found[name] = self.known["strings"][note.string_value_iid]
            else:
                found[name] = note.bool_value if note.HasField("bool_value") else note.int_value
        return found


def parse(data: bytes) -> Parsed:
    """Parse a trace and hold it to what every trace must keep: see the assertions."""
    texts, tracks, events, clocks = _Texts(), {}, [], {}
    opened: dict[int, list[Event]] = defaultdict(list)
    latest: dict[int, int] = {}
    for number, packet in enumerate(Trace.FromString(data).packet):
        assert packet.trusted_packet_sequence_id == 1
        assert bool(packet.sequence_flags & 1) == (number == 0), "the interned texts are begun anew once"
        texts.add(packet.interned_data)
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks and track.name
            assert not track.parent_uuid or track.parent_uuid in tracks
            tracks[track.uuid] = track
        for clock in packet.clock_snapshot.clocks:
            clocks[clock.clock_id] = clock.timestamp
        if packet.HasField("track_event"):
            _event(packet, texts, tracks, opened, latest, events)
    assert not any(opened.values()), "every slice ends"
    _arrows(events)
    return Parsed(tracks, events, clocks)


def _event(
    packet: Any,
    texts: _Texts,
    tracks: dict[int, Any],
    opened: dict[int, list[Event]],
    latest: dict[int, int],
    events: list[Event],
) -> None:
    source, at = packet.track_event, packet.timestamp
    track = source.track_uuid
    assert track in tracks, "an event's track is told before it"
    assert at < 1 << 63, "no time before the trace's zero"
    is_counter = source.type == COUNTER
    assert tracks[track].HasField("counter") == is_counter
    if source.type == END:
        slice_ = opened[track].pop()
        slice_.end = at
        assert at >= max(slice_.at, latest[track]), "a slice ends behind what is inside it"
        latest[track] = at
        return
    event = Event(source.type, track, at, value=source.counter_value)
    if not is_counter:
        # a slice's inside lies inside, and what follows it begins behind its end
        assert at >= latest.get(track, 0), f"{tracks[track].name}: steps back in time"
        latest[track] = at
        event.name = texts.known["event_names"][source.name_iid]
        event.category = texts.known["event_categories"][source.category_iids[0]]
        event.notes = texts.notes(source.debug_annotations)
        event.starts, event.ends = tuple(source.flow_ids), tuple(source.terminating_flow_ids)
        event.parent = opened[track][-1] if opened[track] else None
    if source.type == BEGIN:
        opened[track].append(event)
    events.append(event)


def _arrows(events: list[Event]) -> None:
    """Every arrow begins once and ends once, not before it began."""
    begin = {arrow: event for event in events for arrow in event.starts}
    end = {arrow: event for event in events for arrow in event.ends}
    assert begin.keys() == end.keys()
    assert len(begin) == sum(len(e.starts) for e in events) == sum(len(e.ends) for e in events)
    assert all(begin[arrow].at <= end[arrow].at for arrow in begin)
