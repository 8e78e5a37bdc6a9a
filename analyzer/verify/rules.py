"""Explain why two readings of a capture differ: each rule proves its result from the packets, or returns None.

A rule without evidence must return None: an unexplained difference is a bug of one of the two programs.
"""

from .difference import SENT_BEFORE, Matter, Right, Why
from .frame_tiling import FRAME_HEADER, PREFACE, Direction, Run
from .packet_index import PacketIndex
from .records import Frame, Packet, Status

_DATA, _HEADERS, _RST_STREAM, _GOAWAY = 0, 1, 3, 7
_END_STREAM = 1
_TYPES = 10
"""Frame types of RFC 9113."""
_CLOSE_NS = 1_000_000
"""Within this time two records without an IPv4 identification are one packet, nanoseconds."""


class Rules:
    """The rules, with their intermediate results."""

    def __init__(self, matter: Matter) -> None:
        """Prepare the rules for both readings."""
        self.matter = matter
        self._earlier = PacketIndex(matter.theirs.packets)
        self._listed: dict[tuple[int, int], list[Frame]] = {}
        self._sizes: dict[tuple[int, int, int, int], list[int]] = {}
        self._last_of_theirs = max(matter.their_packet, default=0)

    def packet(self, mine: Packet | None, other: Packet | None) -> Why | None:
        """Explain a packet that only one side has."""
        if mine and not other and self.matter.theirs.notes and mine.packet > self._last_of_theirs:
            note = self.matter.theirs.notes[-1]
            return Why("file-damage", "grpcdiag", f"Wireshark stopped before it, where the file is damaged: {note}")
        return None

    # frames

    def our_frame(self, place: int) -> Why | None:
        """Explain a frame that grpcdiag lists and Wireshark does not."""
        matter = self.matter
        frame = matter.our_frames[place]
        direction = matter.directions.get((frame.connection, frame.direction))
        if direction and matter.ours.connections[frame.connection].tls:
            return self._in_tls(direction, frame, "grpcdiag")
        index = matter.place_in_direction[place]
        run = direction.run_of(index) if direction else None
        if direction is None or run is None or not run.proven:
            return None
        begin = direction.offset(run, index)
        fills = f"it is one of {len(run.frames):,} frames of grpcdiag that {self._fill(direction, run)}"
        return self._lost(direction, frame, begin, fills)

    def _fill(self, direction: Direction, run: Run) -> str:
        """Say that the frames of a run fill its bytes."""
        frames = direction.frames[run.frames.start : run.frames.stop]
        first, last = frames[0].packet, frames[-1].packet
        packets = f"packets up to #{last}" if first == last else f"packets #{first} to #{last}"
        exactly = "exactly" if not run.slack else f"to within {run.slack:,} bytes"
        return f"fill {run.end - run.start:,} bytes of {packets} {exactly}"

    def _lost(self, direction: Direction, frame: Frame, begin: int, fills: str) -> Why:
        """Explain where Wireshark lost the frame boundaries; grpcdiag's frames are proven already."""
        end = begin + FRAME_HEADER + frame.length
        cut, hole = direction.cut_before(end), direction.hole_before(end)
        if cut:
            text = f"#{cut.packet} was cut after {cut.captured:,} of {cut.length:,} payload bytes; Wireshark does not"
            return Why("cut-before", "grpcdiag", f"{fills}; {text} follow frames across a cut")
        if hole:
            text = f"{hole[1] - hole[0]:,} bytes before its end are not in the capture; Wireshark"
            return Why(
                "hole-before", "grpcdiag", f"{fills}; {text} then looks for frames only at the beginnings of packets"
            )
        if not self.matter.ours.connections[frame.connection].complete:
            text = "the connection began before the capture, so Wireshark looks for frames only where packets begin"
            return Why("begun-before", "grpcdiag", f"{fills}; {text}")
        text = "no byte of this sender is missing up to here: Wireshark lost the frame boundaries"
        return Why("lost-place", "grpcdiag", f"{fills}; {text}")

    def their_frame(self, place: int) -> Why | None:
        """Explain a frame that Wireshark lists and grpcdiag does not."""
        matter = self.matter
        frame = matter.their_frames[place]
        direction = matter.directions.get((frame.connection, frame.direction))
        packet = direction.place.get(frame.packet) if direction else None
        if direction is None or packet is None:
            return None
        if matter.ours.connections[frame.connection].tls:
            return self._in_tls(direction, frame, "wireshark")
        size = FRAME_HEADER + frame.length
        if packet.seq + packet.length - size < direction.begin and packet.seq + size > direction.end:
            text = f"a frame of {size:,} bytes neither ends nor begins in a packet at byte {packet.seq:,} of"
            return Why("longer-than-all", "grpcdiag", f"{text} {direction.end:,} that its sender sent")
        run = direction.covering(packet)
        if run:
            text = f"grpcdiag's frames {self._fill(direction, run)}, and #{packet.packet} is among them"
            return Why("no-room", "grpcdiag", f"{text}: there is no byte for this one")
        return (
            self._fills_gap(direction, frame, packet)
            or self._cut_frame(direction, frame, packet)
            or self._unread(direction, packet)
        )

    def _in_tls(self, direction: Direction, frame: Frame, lists: Right) -> Why | None:
        """Explain a frame in TLS after missing bytes: records are authenticated, so a decrypted one is right."""
        packet = direction.place.get(frame.packet)
        hole = direction.hole_before(packet.seq) if packet else None
        if hole is None:
            return None
        text = f"{hole[1] - hole[0]:,} bytes of its sender before it are missing; TLS proves a record that decrypts"
        return Why("tls-hole-before", lists, text)

    def _unread(self, direction: Direction, packet: Packet) -> Why | None:
        """Explain a frame near missing bytes: grpcdiag lists none up to the next boundary that it can prove."""
        begin, end = self._gap(direction, packet)
        inside = any(run.start < packet.seq + packet.length and packet.seq < run.end for run in direction.runs)
        hole = next((hole for hole in direction.holes if begin <= hole[0] and hole[1] <= end), None)
        if inside or hole is None or hole[0] >= packet.seq + packet.length:
            return None
        text = f"{hole[1] - hole[0]:,} bytes before it are not captured, and no frame boundary is proven before"
        after = f"byte {end:,} of its sender, where grpcdiag resumes" if end < direction.end else "the capture's end"
        return Why("boundary-unknown", None, f"{text} {after}; Wireshark assumes one at the packet's beginning")

    def _gap(self, direction: Direction, packet: Packet) -> tuple[int, int]:
        """Find the bytes [from, to) around a packet in which grpcdiag lists no frame."""
        connection = self.matter.ours.connections[packet.connection]
        opening = (PREFACE if packet.direction == 0 else 0) if connection.complete else direction.begin
        before = [run.end for run in direction.runs if run.start <= packet.seq]
        after = [run.start for run in direction.runs if run.start > packet.seq]
        return max([opening, *before]), min([*after, direction.end])

    def _fills_gap(self, direction: Direction, frame: Frame, packet: Packet) -> Why | None:
        """Explain frames of Wireshark in bytes that grpcdiag skips because no boundary is proven there."""
        matter, (begin, end) = self.matter, self._gap(direction, packet)
        sizes = self._sizes_within((frame.connection, frame.direction), direction, begin, end)
        if sum(sizes) != end - begin:
            return None
        fills = f"Wireshark's {len(sizes):,} frames fill {end - begin:,} bytes that grpcdiag skipped"
        cut, hole = direction.cut_before(end), direction.hole_before(end)
        if cut:
            text = f"#{cut.packet} is cut after {cut.captured:,} of {cut.length:,} payload bytes"
            return Why("cut-frame", "wireshark", f"{fills}; {text}: the frame's header is captured, the rest is not")
        if hole or not matter.ours.connections[frame.connection].complete:
            reason = "after missing bytes" if hole else "on a connection that began before the capture"
            return Why("boundary-not-proven", "wireshark", f"{fills}: {reason} it needs a boundary that it can prove")
        return None

    def _sizes_within(self, key: tuple[int, int], direction: Direction, begin: int, end: int) -> list[int]:
        """List sizes of the frames that only Wireshark lists in the packets of a range of bytes."""
        known = self._sizes.get((*key, begin, end))
        if known is None:
            if key not in self._listed:
                frames = (self.matter.their_frames[place] for place in self.matter.unmatched_theirs)
                self._listed[key] = [frame for frame in frames if frame[1:3] == key]
            places = ((frame, direction.place.get(frame.packet)) for frame in self._listed[key])
            known = [
                FRAME_HEADER + frame.length
                for frame, packet in places
                if packet and packet.seq < end and begin < packet.seq + packet.length
            ]
            self._sizes[*key, begin, end] = known
        return known

    def _cut_frame(self, direction: Direction, frame: Frame, packet: Packet) -> Why | None:
        """Explain a frame that Wireshark lists by its header alone, because the packet was cut inside the frame."""
        size = FRAME_HEADER + frame.length
        whole = packet.captured >= packet.length or packet.captured < FRAME_HEADER
        if whole or frame.kind >= _TYPES or packet.seq + packet.captured >= packet.seq + packet.length:
            return None
        if packet.seq + size > direction.end:
            return None
        right: Right | None = "wireshark" if self._gap(direction, packet)[0] == packet.seq else None
        proof = "the previous frame ends there" if right else "it is not proven that a frame begins there"
        text = f"#{packet.packet} was cut after {packet.captured:,} of {packet.length:,} payload bytes"
        return Why("cut-frame", right, f"{text}: Wireshark lists a frame by its header; {proof}")

    # statuses

    def status(self, mine: Status | None, other: Status | None) -> Why | None:
        """Explain a status that only one side has, or that came when the RPC had ended for its client."""
        if mine and other:
            text = f"the RPC had ended for its client ({mine.value}) before the trailers with {other.value} came"
            return Why("late-answer", "both", text) if mine.ended_before and other.packet >= mine.packet else None
        if mine:
            return self._our_status(mine)
        return self._their_status(other) if other and not mine else None

    def _our_status(self, mine: Status) -> Why | None:
        matter, key = self.matter, (mine.connection, mine.stream)
        frames = matter.by_stream[key]
        trailers = [f for f in frames if f.direction == 1 and f.kind == _HEADERS and f.flags & _END_STREAM]
        missed = [p for p in matter.unmatched_ours if matter.our_frames[p] in trailers]
        if missed:
            return self.our_frame(missed[0])
        if trailers:
            return self._trailers_without_status(mine)
        if why := self._http_status(mine) or self._stream_end(mine, frames):
            return why
        reset = next((f for f in frames if f.kind == _RST_STREAM and f in matter.their_frames_set), None)
        if reset:
            text = (
                f"the stream was reset in #{reset.packet}, without trailers; gRPC maps the error code to {mine.value}"
            )
            return Why("reset", "both", f"{text}, Wireshark shows headers only")
        goaway = next((f for f in matter.by_stream[mine.connection, 0] if f.kind == _GOAWAY), None)
        if goaway or matter.ours.connections[mine.connection].closed:
            text = f"GOAWAY in #{goaway.packet}" if goaway else "the connection ended"
            return Why(
                "connection-end", "both", f"{text} and the stream has neither trailers nor a reset: {mine.value}"
            )
        return None

    def _trailers_without_status(self, mine: Status) -> Why | None:
        """Explain trailers that both list but in which Wireshark finds no `grpc-status`."""
        if why := self._http_status(mine):
            return why
        matter = self.matter
        direction = matter.directions.get((mine.connection, 1))
        complete = matter.ours.connections[mine.connection].complete
        if not complete or (direction and direction.holes):
            since = "the connection began before the capture" if not complete else "bytes of the server are missing"
            text = f"{since}: Wireshark's HPACK table lacks entries, so it shows no header that uses them"
            return Why("hpack-history", "grpcdiag", text)
        return None

    def _http_status(self, mine: Status) -> Why | None:
        http = self.matter.http_statuses.get((mine.connection, mine.stream))
        if not http or http.value == "200" or http.packet > mine.packet:
            return None
        text = f"the response has HTTP status {http.value} and no grpc-status; gRPC maps it to {mine.value}"
        return Why("http-status", "both", text)

    def _stream_end(self, mine: Status, frames: list[Frame]) -> Why | None:
        """Explain a stream that its server ended by DATA; gRPC-Web has its trailers there, and another status."""
        ends = (f for f in frames if f.direction == 1 and f.kind == _DATA and f.flags & _END_STREAM)
        end = next((frame for frame in ends if frame.packet <= mine.packet), None)
        if not end or mine.value != "UNKNOWN":
            return None
        return Why("no-trailers", "both", f"the stream ended in #{end.packet} without trailers: {mine.value}")

    def _their_status(self, other: Status) -> Why | None:
        matter, key = self.matter, (other.connection, other.stream)
        for place in matter.unmatched_theirs:
            frame = matter.their_frames[place]
            if (frame.packet, frame.connection, frame.stream) == other[:3]:
                return self.their_frame(place)
        connection = matter.ours.connections.get(other.connection)
        client, server = (matter.directions.get((other.connection, side)) for side in (0, 1))
        lacking = connection and not connection.complete
        asked = any(f.direction == 0 and f.kind == _HEADERS for f in matter.by_stream[key])
        if key not in matter.ours.rpcs and not asked and (lacking or (client and client.holes)):
            text = "the request's headers are not in the capture, so grpcdiag has no RPC for the status"
            return Why("request-not-captured", "both", text)
        if lacking or (server and server.holes):
            text = "bytes of the server are missing before it: an HPACK index may mean another header now"
            return Why("hpack-history", None, text)
        return None

    # retransmissions

    def retransmission(self, mine: Packet, other: Packet) -> Why | None:
        """Explain a packet that only one side calls retransmitted; Wireshark's row `other` has the evidence."""
        says: Right = "grpcdiag" if mine.notes & SENT_BEFORE else "wireshark"
        denies: Right = "wireshark" if says == "grpcdiag" else "grpcdiag"
        if other.length == 0:
            return self._without_payload(other) if says == "wireshark" else None  # grpcdiag never says so
        if "duplicate" in mine.notes:
            return self._recorded_twice(other)
        same = self._earlier.overlapping(other)
        if same:
            if says != "grpcdiag":
                return None
            text = f"bytes {max(same.seq, other.seq):,} and following were in #{same.packet} before"
            return Why("recorded-before", says, f"{text}: it is retransmitted, however short the time between")
        behind = self._earlier.behind(other)
        return self._by_clock(other, behind, says, denies) if behind else self._by_ack(other, says, denies)

    def _without_payload(self, other: Packet) -> Why | None:
        same = self._earlier.empty(other)
        if same is None:
            return self._out_of_time(other)
        text = f"it repeats #{same.packet} and has no payload; grpcdiag counts only packets with payload"
        return Why("no-payload", "both", text)

    def _out_of_time(self, other: Packet) -> Why | None:
        """Explain a packet without payload that is recorded after later ones of its connection."""
        packet = self._earlier.later_in_time(other)
        if packet is None:
            return None
        text = f"its capture time is before that of #{packet.packet}, which precedes it: the file is not in order"
        return Why("file-order", "grpcdiag", text)

    def _recorded_twice(self, other: Packet) -> Why | None:
        """Explain a packet recorded twice: nothing in it differs."""
        packet = self._earlier.alike(other)
        if packet is None:
            return None
        close = abs(other.time_ns - packet.time_ns) <= _CLOSE_NS and other.sent_at is not None
        if not (other.ip_id or close):
            return None
        same = "the same IPv4 identification, " if other.ip_id else ""
        text = f"it is #{packet.packet} recorded twice: {same}the same sequence number, ACK and clock"
        return Why("recorded-twice", "grpcdiag", text)

    def _by_clock(self, other: Packet, behind: Packet, says: Right, denies: Right) -> Why | None:
        """Explain bytes recorded after later ones: the sender's clock shows whether they were also sent later."""
        if other.time_ns < behind.time_ns:
            text = f"its capture time is before that of #{behind.packet}, which has later bytes"
            return Why("file-order", denies, f"{text}: the file is not in order")
        if other.sent_at is None or behind.sent_at is None:
            return None
        later = (other.sent_at - behind.sent_at + 2**31) % 2**32 - 2**31
        text = f"#{behind.packet} has later bytes and was recorded before; the sender's clock in this one is"
        if later > 0:
            return Why(
                "sent-later", says, f"{text} {later:,} ticks later: it was sent after them, so it is a retransmission"
            )
        return Why("sent-before", denies, f"{text} not later: it was not sent after them, so packets were reordered")

    def _by_ack(self, other: Packet, says: Right, denies: Right) -> Why | None:
        """Explain bytes acknowledged before they were recorded: the ACK's echo shows which transmission it was."""
        if says != "wireshark":
            return None
        packet = self._earlier.acknowledging(other)
        if packet is None or packet.echo is None or other.sent_at is None:
            return None
        later = (other.sent_at - packet.echo + 2**31) % 2**32 - 2**31
        ack = f"#{packet.packet} acknowledges its bytes and was recorded before; this packet's clock is"
        if later > 0:
            text = (
                f"{ack} {later:,} ticks after the one that the ACK echoes: the first transmission is not in the capture"
            )
            return Why("first-not-captured", says, text)
        return Why("ack-recorded-first", denies, f"{ack} not after the one that the ACK echoes: the ACK belongs to it")
