"""Compare two readings of one capture: counts side by side, and every difference.

Pure functions on rows: `records.py` defines the rows, `rules.py` explains why two readings differ.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from .. import _core
from .difference import SENT_BEFORE, Comparison, Count, Difference, Matter
from .records import CaptureRecords, Frame, Packet
from .rules import Rules


def compare(ours: CaptureRecords, theirs: CaptureRecords) -> Comparison:
    """Find every difference of grpcdiag's and Wireshark's reading of a capture, explained where a rule can."""
    matter = Matter(ours, theirs)
    rules = Rules(matter)
    differences = [
        *_compare_packets(matter, rules),
        *_compare_frames(matter, rules),
        *_compare_streams(matter, rules),
        *_compare_statuses(matter, rules),
        *_compare_retransmissions(matter, rules),
    ]
    ordered = tuple(sorted(differences, key=lambda difference: difference.packet))
    return Comparison(tuple(_count_all(matter)), ordered, tuple(theirs.notes))


def frame_name(frame: Frame) -> str:
    """Describe a frame for reports."""
    names = _core.FRAME_TYPES
    kind = names[frame.kind] if frame.kind < len(names) else f"type 0x{frame.kind:02x}"
    sender = ("client", "server")[frame.direction] if frame.direction in (0, 1) else "?"
    return f"{kind} of {frame.length:,} bytes, flags 0x{frame.flags:02x}, on stream {frame.stream} from the {sender}"


def _count_all(matter: Matter) -> Iterator[Count]:
    ours, theirs = matter.ours, matter.theirs
    yield Count("connections", len({p.connection for p in ours.packets}), len({p.connection for p in theirs.packets}))
    yield Count("packets", len(ours.packets), len(theirs.packets))
    yield Count("retransmissions", len(_find_retransmitted(ours.packets)), len(_find_retransmitted(theirs.packets)))
    yield Count("frames", len(ours.frames), len(theirs.frames))
    kinds = (Counter(f.kind for f in ours.frames), Counter(f.kind for f in theirs.frames))
    for kind, name in enumerate(_core.FRAME_TYPES):
        if kinds[0][kind] or kinds[1][kind]:
            yield Count(name, kinds[0].pop(kind, 0), kinds[1].pop(kind, 0))
    others = kinds[0].total(), kinds[1].total()
    if any(others):
        yield Count("frames of other types", *others)
    yield Count("streams", len(_collect_streams(matter.our_frames)), len(_collect_streams(matter.their_frames)))
    yield Count("gRPC statuses", len(ours.statuses), len({(s.connection, s.stream) for s in theirs.statuses}))


def _collect_streams(frames: Iterable[Frame]) -> set[tuple[int, int]]:
    return {(frame.connection, frame.stream) for frame in frames if frame.stream}


def _find_retransmitted(packets: Iterable[Packet]) -> set[int]:
    return {packet.packet for packet in packets if packet.notes & SENT_BEFORE}


def _compare_packets(matter: Matter, rules: Rules) -> Iterator[Difference]:
    """Find packets that one side lacks, assigns to another connection, or lists with another length."""
    for number in sorted(matter.our_packet.keys() ^ matter.their_packet.keys()):
        mine, other = matter.our_packet.get(number), matter.their_packet.get(number)
        connection = mine.connection if mine else None
        said = [f"TCP, {p.length:,} bytes from {p.sender}" if p else None for p in (mine, other)]
        yield Difference("packet", connection, None, number, said[0], said[1], rules.packet(mine, other))
    back: dict[int, int] = {}
    for number, other in matter.their_packet.items():
        mine = matter.our_packet.get(number)
        if mine is None:
            continue
        if (mine.length, mine.sender) != (other.length, other.sender):
            said = [f"{p.length:,} bytes from {p.sender}" for p in (mine, other)]
            yield Difference("packet", mine.connection, None, number, said[0], said[1])
        stream = back.setdefault(mine.connection, other.connection)
        if stream != other.connection or matter.connection_of[other.connection] != mine.connection:
            said = [f"connection {mine.connection}", f"tcp.stream {other.connection}"]
            yield Difference("connection", mine.connection, None, number, said[0], said[1])


def _compare_frames(matter: Matter, rules: Rules) -> Iterator[Difference]:
    for place in matter.unmatched_ours:
        frame = matter.our_frames[place]
        why = rules.our_frame(place)
        yield Difference("frame", frame.connection, frame.stream, frame.packet, frame_name(frame), None, why)
    for place in matter.unmatched_theirs:
        frame = matter.their_frames[place]
        connection = frame.connection if frame.connection >= 0 else None
        why = rules.their_frame(place)
        yield Difference("frame", connection, frame.stream, frame.packet, None, frame_name(frame), why)


def _compare_streams(matter: Matter, rules: Rules) -> Iterator[Difference]:
    """Find streams of which only one side lists frames; explained when all of these frames are."""
    ours, theirs = _collect_streams(matter.our_frames), _collect_streams(matter.their_frames)
    for missing, frames, places in (
        (ours - theirs, matter.our_frames, matter.unmatched_ours),
        (theirs - ours, matter.their_frames, matter.unmatched_theirs),
    ):
        listed: dict[tuple[int, int], list[int]] = defaultdict(list)
        for place in places:
            listed[frames[place].connection, frames[place].stream].append(place)
        for key in sorted(missing):
            mine = frames is matter.our_frames
            whys = [rules.our_frame(place) if mine else rules.their_frame(place) for place in listed[key]]
            said = f"{len(whys):,} frame{'s' if len(whys) > 1 else ''}"
            first = frames[listed[key][0]]
            why = whys[0] if all(whys) else None
            ours_said, theirs_said = (said, None) if mine else (None, said)
            yield Difference("stream", key[0], key[1], first.packet, ours_said, theirs_said, why)


def _compare_statuses(matter: Matter, rules: Rules) -> Iterator[Difference]:
    ours = {(s.connection, s.stream): s for s in matter.ours.statuses}
    theirs = {(s.connection, s.stream): s for s in matter.their_statuses}
    for key in sorted(ours.keys() | theirs.keys()):
        mine, other = ours.get(key), theirs.get(key)
        if mine and other and mine.value == other.value:
            continue
        packet = next(status.packet for status in (mine, other) if status)
        values = (mine.value if mine else None, other.value if other else None)
        yield Difference("status", *key, packet, *values, rules.status(mine, other))


def _compare_retransmissions(matter: Matter, rules: Rules) -> Iterator[Difference]:
    ours, theirs = _find_retransmitted(matter.ours.packets), _find_retransmitted(matter.theirs.packets)
    for number in sorted(ours ^ theirs):
        mine, other = matter.our_packet.get(number), matter.their_packet.get(number)
        if mine is None or other is None:
            continue  # a packet that one side lacks is a difference of its own
        said = [", ".join(sorted(p.notes)).replace("_", " ") or "no note" for p in (mine, other)]
        why = rules.retransmission(mine, other)
        yield Difference("retransmission", mine.connection, None, number, said[0], said[1], why)
