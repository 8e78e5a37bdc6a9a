"""Write the packets of a Perfetto trace: tracks, slices, instants and counters, with each text written once.

The `perfetto` package has the trace builder and the message types (https://perfetto.dev/docs/reference/
trace-packet-proto). Concatenated pieces are a valid trace, so the whole trace is never in memory.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    BuiltinClock,
    CounterDescriptor,
    DebugAnnotation,
    TracePacket,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from ...analyzer.model.text import safe
from ...analyzer.tables.durations import clip_ns

Value = bool | int | str | None | Mapping[str, int] | Mapping[str, str]
"""Values of annotations; None is left out, and a mapping holds nested annotations."""

PIECE = 8192
"""Packets of a piece, about 0.5 MB."""
MOST_TEXT = 2048
"""Most characters of a text: explanations fit, longer foreign text is cut."""
_SEQUENCE = 1
_INTERNED: dict[str, Callable[[str], dict[str, str | bytes]]] = {
    "event_names": lambda text: {"name": shown(text)},
    "event_categories": lambda text: {"name": text},
    "debug_annotation_names": lambda text: {"name": text},
    "debug_annotation_string_values": lambda text: {"str": shown(text).encode()},
}
"""Texts that are written once and then have numbers, by their field in a packet."""


class _Annotations(Protocol):
    def add(self) -> DebugAnnotation: ...


class Writer:
    """Collects packets until `take` returns them. Times are nanoseconds from the trace's zero."""

    def __init__(self, epoch_ns: int) -> None:
        """Begin a trace; `epoch_ns` is the Unix time of its zero, so that the viewer can show the time of day."""
        self._builder = TraceProtoBuilder()
        self._count = 0
        self._tracks = 0
        self._flows = 0
        self._known: dict[str, dict[str, int]] = {field: {} for field in _INTERNED}
        first = self._packet()
        first.sequence_flags = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED | TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        first.trace_packet_defaults.timestamp_clock_id = BuiltinClock.BUILTIN_CLOCK_BOOTTIME
        if epoch_ns >= 0:
            snapshot = self._packet().clock_snapshot
            snapshot.clocks.add(clock_id=BuiltinClock.BUILTIN_CLOCK_BOOTTIME, timestamp=0)
            snapshot.clocks.add(clock_id=BuiltinClock.BUILTIN_CLOCK_REALTIME, timestamp=epoch_ns)

    @property
    def full(self) -> bool:
        """Say whether a piece is ready."""
        return self._count >= PIECE

    def take(self) -> bytes:
        """Return the packets collected since the last piece."""
        piece: bytes = self._builder.serialize()
        self._builder, self._count = TraceProtoBuilder(), 0
        return piece

    def track(self, name: str, parent: int | None, rank: int, description: str = "") -> int:
        """Add a track of slices and instants, and of other tracks in the order of their ranks.

        The viewer shows tracks with one parent and one name as one.
        """
        self._track(name, parent, rank, description)
        return self._tracks

    def counter(self, name: str, parent: int, rank: int, description: str = "") -> int:
        """Add a counter of bytes."""
        track = self._track(name, parent, rank, description)
        track.counter.unit = CounterDescriptor.UNIT_SIZE_BYTES
        return self._tracks

    def count(self, name: str, parent: int, rank: int, what: str) -> int:
        """Add a counter of things."""
        track = self._track(name, parent, rank, "")
        track.counter.unit_name = what
        return self._tracks

    def _track(self, name: str, parent: int | None, rank: int, description: str) -> TrackDescriptor:
        self._tracks += 1
        track = self._packet().track_descriptor
        track.uuid, track.name = self._tracks, shown(name)
        track.sibling_order_rank, track.child_ordering = rank, TrackDescriptor.EXPLICIT
        if parent is not None:
            track.parent_uuid = parent
        if description:
            track.description = shown(description)
        return track

    def flow(self) -> int:
        """Give the number of a new arrow between two events."""
        self._flows += 1
        return self._flows

    def begin(self, track: int, at: int, name: str, category: str, notes: Mapping[str, Value] | None = None) -> None:
        """Begin a slice; the matching `end` of its track ends it."""
        self._event(track, at, TrackEvent.TYPE_SLICE_BEGIN, name, category, notes)

    def end(self, track: int, at: int) -> None:
        """End the slice begun last on a track."""
        packet = self._packet()
        packet.timestamp = at
        packet.track_event.type, packet.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, track

    def slice(
        self, track: int, at: int, until: int, name: str, category: str, notes: Mapping[str, Value] | None = None
    ) -> None:
        """Add a slice without slices inside."""
        self.begin(track, at, name, category, notes)
        self.end(track, until)

    def instant(
        self,
        track: int,
        at: int,
        name: str,
        category: str,
        notes: Mapping[str, Value] | None = None,
        *,
        starts: Iterable[int] = (),
        ends: Iterable[int] = (),
    ) -> None:
        """Add an event without duration; arrows may start and end there."""
        event = self._event(track, at, TrackEvent.TYPE_INSTANT, name, category, notes)
        event.flow_ids.extend(starts)
        event.terminating_flow_ids.extend(ends)

    def value(self, track: int, at: int, value: int) -> None:
        """Set the value of a counter from a time on."""
        packet = self._packet()
        packet.timestamp = at
        event = packet.track_event
        event.type, event.track_uuid, event.counter_value = TrackEvent.TYPE_COUNTER, track, value

    def _packet(self) -> TracePacket:
        self._count += 1
        packet = self._builder.add_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        return packet

    def _event(
        self, track: int, at: int, kind: int, name: str, category: str, notes: Mapping[str, Value] | None
    ) -> TrackEvent:
        packet = self._packet()
        packet.timestamp = at
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        event.name_iid = self._number(packet, "event_names", name)
        event.category_iids.append(self._number(packet, "event_categories", category))
        self._notes(packet, event.debug_annotations, notes or {})
        return event

    def _notes(self, packet: TracePacket, into: _Annotations, notes: Mapping[str, Any]) -> None:
        for key, value in notes.items():
            if value is None:
                continue
            note = into.add()
            note.name_iid = self._number(packet, "debug_annotation_names", key)
            if isinstance(value, bool):
                note.bool_value = value
            elif isinstance(value, int):
                note.int_value = clip_ns(value)
            elif isinstance(value, str):
                note.string_value_iid = self._number(packet, "debug_annotation_string_values", value)
            else:
                self._notes(packet, note.dict_entries, value)

    def _number(self, packet: TracePacket, field: str, text: str) -> int:
        """Give the number of a text; the first packet with a new text defines its number."""
        known = self._known[field]
        number = known.get(text)
        if number is None:
            number = known[text] = len(known) + 1
            getattr(packet.interned_data, field).add(iid=number, **_INTERNED[field](text))
        return number


def shown(text: str) -> str:
    """Clean text from a capture for the viewer: no invisible characters, limited length."""
    text = safe(text[:MOST_TEXT]) + ("..." if len(text) > MOST_TEXT else "")
    return text.encode("utf-8", "replace").decode()
