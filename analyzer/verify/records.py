"""One program's reading of a capture, as rows that can be compared with another program's."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

from .. import _core
from ..tables import NOT_SEEN, PROTOCOLS, Tables

_NOT_CLOSED = 2
_ENDED_BEFORE = tuple(_core.STATUS_SOURCES.index(name) for name in ("client_deadline", "client_reset", "connection"))
"""`Rpcs.status_source` of RPCs that ended for their client without the server's status."""


class Connection(NamedTuple):
    """A TCP connection."""

    client: str
    """`address:port` of the client."""
    server: str
    """`address:port` of the server."""
    complete: bool
    """Its opening is in the capture."""
    tls: bool
    """It is TLS."""
    closed: bool
    """Its end is in the capture."""


class Packet(NamedTuple):
    """A TCP packet."""

    packet: int
    """Number in the capture, from 1."""
    connection: int
    """Number of its connection, in the program's own numbering."""
    sender: str
    """Address and port of the sender."""
    direction: int
    """0 from the client, 1 from the server, -1 from Wireshark, which does not decide it."""
    seq: int
    """Sequence number of its first payload byte, relative to any base of its direction."""
    length: int
    """Payload bytes on the wire."""
    captured: int
    """Payload bytes recorded."""
    notes: frozenset[str] = frozenset()
    """The program's classification of the packet, such as a retransmission."""
    time_ns: int = 0
    """Capture time, nanoseconds since the epoch."""
    ack: int = 0
    """Acknowledgement number, with the base of `seq` of the other direction."""
    sent_at: int | None = None
    """The sender's clock in the timestamps option (RFC 7323 section 3)."""
    echo: int | None = None
    """The receiver's clock that it echoes."""
    ip_id: int | None = None
    """IPv4 identification."""


class Frame(NamedTuple):
    """An HTTP/2 frame."""

    packet: int
    """The packet that completes it."""
    connection: int
    """Number of its connection."""
    direction: int
    """As in `Packet`."""
    kind: int
    """Type (RFC 9113 section 6)."""
    flags: int
    """Flags as sent."""
    stream: int
    """Stream identifier."""
    length: int
    """Payload bytes, without the nine bytes of the frame header."""


class Status(NamedTuple):
    """A status of an RPC or of an HTTP response."""

    packet: int
    """The packet that ended the RPC or the header block."""
    connection: int
    """Number of its connection."""
    stream: int
    """Stream identifier."""
    value: str
    """gRPC's name of the status, or HTTP's number."""
    ended_before: bool = False
    """The RPC had ended for its client before the server's own status, if there is one."""


class CaptureRecords(Struct):
    """One program's reading of a capture."""

    connections: dict[int, Connection] = field(default_factory=dict)
    """By number; Wireshark's are known by their packets only."""
    packets: list[Packet] = field(default_factory=list)
    """In the capture's order."""
    frames: list[Frame] = field(default_factory=list)
    """In the order in which the frames of each direction were complete."""
    starts: list[int] = field(default_factory=list)
    """Per frame the packet of its first byte; empty where the program does not say."""
    statuses: list[Status] = field(default_factory=list)
    """gRPC statuses."""
    http_statuses: list[Status] = field(default_factory=list)
    """HTTP statuses; grpcdiag does not keep them."""
    rpcs: set[tuple[int, int]] = field(default_factory=set)
    """Connection and stream of every RPC; empty where the program does not say."""
    notes: list[str] = field(default_factory=list)
    """Warnings of the program."""


def of_tables(tables: Tables) -> CaptureRecords:
    """Convert grpcdiag's tables, which must have rows of frames and packets. RPCs over HTTP/1.1 have no streams."""
    c, f, r = tables.connections, tables.frames, tables.rpcs
    on_streams = c.protocol[r.connection] != PROTOCOLS.index("http1")
    frames = (f.last_packet, f.connection, f.direction, f.kind, f.flags, f.stream, f.length)
    seen = [
        Status(packet, connection, stream, _core.STATUSES[status], source in _ENDED_BEFORE)
        for packet, connection, stream, status, source in zip(
            *(
                column[on_streams].tolist()
                for column in (r.last_packet, r.connection, r.stream, r.status, r.status_source)
            ),
            strict=True,
        )
        if status != NOT_SEEN
    ]
    return CaptureRecords(
        connections={
            row: Connection(
                tables.client(row),
                tables.server(row),
                bool(c.complete[row]),
                bool(c.tls[row]),
                bool(c.closed_by[row] != _NOT_CLOSED),
            )
            for row in range(len(c.complete))
        },
        packets=list(_packets(tables)),
        frames=[Frame(*row) for row in zip(*(column.tolist() for column in frames), strict=True)],
        starts=f.first_packet.tolist(),
        statuses=seen,
        rpcs=set(zip(*(column[on_streams].tolist() for column in (r.connection, r.stream)), strict=True)),
    )


def _packets(tables: Tables) -> Iterator[Packet]:
    p = tables.packets
    ends = [(tables.client(row), tables.server(row)) for row in range(len(tables.connections.complete))]
    notes = [frozenset([name]) if name else frozenset() for name in _core.PACKET_NOTES]
    columns = (p.packet, p.connection, p.direction, p.seq, p.payload_bytes, p.captured_payload_bytes, p.note, p.time_ns)
    for number, connection, direction, seq, length, captured, note, time_ns in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        sender = ends[connection][direction]
        yield Packet(number, connection, sender, direction, seq, length, captured, notes[note], time_ns)


class Ports(NamedTuple):
    """How another program must decode ports, because it does not search for HTTP/2 itself."""

    http2: frozenset[int]
    """HTTP/2 from the first byte."""
    upgraded: frozenset[int]
    """HTTP/1.1 that became HTTP/2 (h2c)."""
    tls: frozenset[int]
    """TLS."""


def ports(tables: Tables) -> Ports:
    """Group the servers' ports by protocol."""
    c, f, p = tables.connections, tables.frames, tables.packets
    payload = (p.direction == 1) & (p.payload_bytes > 0)
    answered = dict(zip(*(column[payload][::-1].tolist() for column in (p.connection, p.packet)), strict=True))
    framed = dict(
        zip(*(column[f.direction == 1][::-1].tolist() for column in (f.connection, f.first_packet)), strict=True)
    )
    found: tuple[set[int], set[int], set[int]] = (set(), set(), set())
    for row, port in enumerate(c.server_port.tolist()):
        if c.tls[row]:
            found[2].add(port)
        elif c.protocol[row] == PROTOCOLS.index("http2"):
            # the server of an upgraded connection sends an HTTP/1.1 response before its first frame
            upgraded = c.complete[row] and row in framed and framed[row] != answered.get(row)
            found[1 if upgraded else 0].add(port)
    http2, upgraded_ports, tls = found
    return Ports(frozenset(http2 - upgraded_ports - tls), frozenset(upgraded_ports - tls), frozenset(tls))
