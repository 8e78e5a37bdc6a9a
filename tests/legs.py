"""Captures of a proxy's both sides: a client at 10.0.0.1, the proxy at 10.0.0.2, its server at 10.0.0.3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.mangle import in_time_order
from grpcdiag.fixtures.synthetic.packet import Endpoint
from grpcdiag.fixtures.synthetic.rpc import Rpc
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.fixtures.synthetic.words import MS, START_NS

METHOD = "/demo.Store/Get"

CLIENT, PROXY = Endpoint("02:00:00:00:00:01", "10.0.0.1", 40001), Endpoint("02:00:00:00:00:02", "10.0.0.2", 8080)
OUTWARD, SERVER = Endpoint("02:00:00:00:00:02", "10.0.0.2", 40002), Endpoint("02:00:00:00:00:03", "10.0.0.3", 9000)
OUTWARD2, SERVER2 = Endpoint("02:00:00:00:00:03", "10.0.0.3", 40003), Endpoint("02:00:00:00:00:04", "10.0.0.4", 9001)
NEAR_NS = 2 * MS
"""Round trip of each link."""


class Leg:
    """One connection, on which things happen at given times."""

    def __init__(self) -> None:
        self.conv = Conversation(start_ns=START_NS, rtt_ns=NEAR_NS)
        self.conv.open()

    def at(self, ms: float) -> None:
        """Go on to a time after the beginning."""
        self.conv.advance(START_NS + int(ms * MS) - self.conv.clock_ns)

    def begin(self, ms: float, metadata: Sequence[tuple[bytes, bytes]] = (), request: int = 20) -> Rpc:
        """Begin a call with its whole request."""
        self.at(ms)
        call = self.conv.start_rpc(METHOD, metadata=list(metadata))
        call.send_message(request, end_stream=True)
        return call

    def end(self, ms: float, call: Rpc, response: int = 50, status: int = 0) -> None:
        """Answer a call."""
        self.at(ms)
        if status:
            call.trailers_only(status)
        else:
            call.reply_message(response)
            call.finish()


def capture(folder: Path, *legs: tuple[Leg, Endpoint, Endpoint, str], killed: int = -1) -> str:
    """Write the capture of some connections; the server closes the one with the number `killed`."""
    packets = [
        packet
        for number, (leg, client, server, vantage) in enumerate(legs)
        for packet in Link(
            rtt_ns=NEAR_NS,
            client=client,
            server=server,
            vantage=vantage,
            connection=number,
            close="server" if number == killed else "none",
        ).carry(leg.conv)
    ]
    path = folder / "hops.pcap"
    path.write_bytes(write_pcap(in_time_order(packets)))
    return str(path)


def trace(number: int) -> list[tuple[bytes, bytes]]:
    return [(b"traceparent", b"00-%032x-%016x-01" % (number + 1, number + 1))]


def request_id(number: int) -> list[tuple[bytes, bytes]]:
    return [(b"x-request-id", b"id-%d" % number)]


def nothing(_number: int) -> list[tuple[bytes, bytes]]:
    return []


def pass_on(front: Leg, back: Leg, ids: object = nothing, *, calls: int = 6, up: float = 5, down: float = 3) -> None:
    """Make calls one after the other that a proxy holds for some milliseconds each way; the server takes 10 ms."""
    for number in range(calls):
        start = 20 + 100 * number
        metadata = ids(number)  # type: ignore[operator]
        first = front.begin(start, metadata)
        # the request is at the proxy after half a round trip, and so is the answer
        second = back.begin(start + 1 + up, metadata)
        back.end(start + 1 + up + 1 + 10, second)
        front.end(start + 1 + up + 1 + 10 + 1 + down, first)
