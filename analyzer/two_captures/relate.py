"""Relate two captures of the same connections: which is the client's, one clock, packets that crossed or were lost."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..model.ends import ClockSource
from ..sidecar.read import Mismatch, Sidecar, add_clock_errors, check_match, have_one_clock
from ..summary.figures import HTTP1, HTTP2, TLS
from ..tables import Ints, Mask
from ..tables.grouping import take_rows
from .clock import Clock, NoClock, fit
from .connections import Pair, pairs
from .losses import Losses, losses
from .matching import Crossing, align, alike, cross
from .recorded import RETRANSMISSION, Recorded, Trace

_CLEAR_NS = 100_000
"""Least difference of the round trips to the client that shows which capture point is nearer to it."""

Described = Callable[[Sequence[str]], tuple[Sidecar | None, tuple[str, ...]]]
"""A function that finds the sidecar of files, and warnings about it."""


def describe_nothing(_files: Sequence[str]) -> tuple[None, tuple[str, ...]]:
    """Find no sidecar."""
    return None, ()


class RelatedCaptures(Struct, frozen=True, eq=False):
    """Both captures on a common clock."""

    client: Recorded
    server: Recorded
    shared: tuple[Pair, ...]
    clock: Clock
    up: Crossing
    """From the client's capture point to the server's."""
    down: Crossing
    """From the server's capture point to the client's."""
    up_losses: Losses
    down_losses: Losses
    turned: Mask
    """Connections of the client's capture whose client is at the server's capture point."""
    source: ClockSource = "symmetric_path"
    hosts_error_ns: int | None = None
    """See `ClockFacts.hosts_error_ns`."""


def relate_captures(both: tuple[Recorded, Recorded], described: Described, synchronised: bool) -> RelatedCaptures:
    """Match packets; take the clocks as they are if asked for, or if one host recorded both. Raises NoClock."""
    sidecars = _find_sidecars(both, described)
    known = replace if sidecars is None else partial(replace, hosts_error_ns=add_clock_errors(*sidecars))
    if synchronised:
        return known(_match(*both, as_they_are=True), source="synchronised")
    if sidecars is not None and have_one_clock(*sidecars):
        with suppress(NoClock):  # copies of a virtual machine have equal ids, but clocks of their own
            return replace(_match(*both, as_they_are=True), source="same_host")
    return known(_match(*both))


def _find_sidecars(both: tuple[Recorded, Recorded], described: Described) -> tuple[Sidecar, Sidecar] | None:
    """Find the sidecars of both captures; None unless both have one that belongs to it."""
    first, second = (described(one.files)[0] for one in both)
    if first is None or second is None:
        return None
    try:
        check_match(both[0].tables, first)
        check_match(both[1].tables, second)
    except Mismatch:
        return None
    return first, second


def _match(first: Recorded, second: Recorded, *, as_they_are: bool = False) -> RelatedCaptures:
    """Match packets and clocks; if round trips do not show which capture is the client's, try both. Raises NoClock."""
    relate = partial(_relate, as_they_are=as_they_are)
    shared = _find_shared(first, second)
    if not shared:
        raise NoClock("they have no HTTP/2 or TLS connection in common")
    nearer = sum(_compare_nearness(first, second, pair) * _count_packets(first, pair) for pair in shared)
    if nearer > 0:
        return relate(first, second, shared)
    if nearer < 0:
        return relate(second, first, _find_shared(second, first))
    try:
        return relate(first, second, shared)
    except NoClock:
        return relate(second, first, _find_shared(second, first))


def _find_shared(first: Recorded, second: Recorded) -> tuple[Pair, ...]:
    """Find the HTTP/2, gRPC-Web and TLS connections that are in both captures."""
    mine, theirs = first.tables.connections.protocol, second.tables.connections.protocol
    wanted = (HTTP2, HTTP1, TLS)
    return tuple(p for p in pairs(first, second) if mine[p.first] in wanted or theirs[p.second] in wanted)


def _count_packets(recorded: Recorded, pair: Pair) -> int:
    connections = recorded.tables.connections
    return int(connections.packets_client[pair.first]) + int(connections.packets_server[pair.first])


def _compare_nearness(first: Recorded, second: Recorded, pair: Pair) -> int:
    """Return 1 when the first capture point is nearer to the client, -1 when the second is, 0 when unclear."""
    near = int(first.tables.connections.near_client_rtt_ns[pair.first])
    others = second.tables.connections
    far = int((others.near_server_rtt_ns if pair.swapped else others.near_client_rtt_ns)[pair.second])
    if min(near, far) < 0 or abs(far - near) < _CLEAR_NS:
        return 0
    return 1 if far > near else -1


def _relate(client: Recorded, server: Recorded, shared: tuple[Pair, ...], *, as_they_are: bool) -> RelatedCaptures:
    size = len(client.tables.connections.protocol)
    turned, late = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    for pair in shared:
        turned[pair.first] = _compare_nearness(client, server, pair) < 0
        late[pair.first] = not pair.complete
    mine, theirs = align(client, server, shared)
    sent_up, got_down = _split_ways(mine, turned)
    got_up, sent_down = _split_ways(theirs, turned)
    up, down = alike(sent_up, got_up), alike(sent_down, got_down)
    outward = _find_first_copies(sent_up, got_up, up.sent, up.received)
    clock = fit(outward, _find_first_copies(got_down, sent_down, down.received, down.sent), as_they_are=as_they_are)
    fastest_up, fastest_down = clock.fastest_ns
    crossing_up = cross(sent_up, got_up, (sent_up.time_ns, convert_to_client(clock, got_up.time_ns)), up, fastest_up)
    crossing_down = cross(
        sent_down, got_down, (convert_to_client(clock, sent_down.time_ns), got_down.time_ns), down, fastest_down
    )
    windows = (_find_time_span(client, None), _find_time_span(server, clock))
    return RelatedCaptures(
        client=client,
        server=server,
        shared=shared,
        clock=clock,
        up=crossing_up,
        down=crossing_down,
        up_losses=losses(crossing_up, sent_down, windows[1], windows[0], late),
        down_losses=losses(crossing_down, sent_up, windows[0], windows[1], late),
        turned=turned,
    )


def _split_ways(trace: Trace, turned: Mask) -> tuple[Trace, Trace]:
    """Split packets into those from the client's capture point to the server's, and those back."""
    back = trace.direction.astype(bool) ^ turned[trace.connection]
    return take_rows(trace, ~back), take_rows(trace, back)


def _find_first_copies(mine: Trace, theirs: Trace, rows: Ints, others: Ints) -> tuple[Ints, Ints]:
    """Return, for packets sent once, their times in `mine`, and their times in `theirs` less these."""
    once = (mine.note[rows] != RETRANSMISSION) & (theirs.note[others] != RETRANSMISSION)
    times = mine.time_ns[rows[once]]
    return times, theirs.time_ns[others[once]] - times


def convert_to_client(clock: Clock, times: Ints) -> Ints:
    """Convert times of the server's clock to the client's."""
    return times - clock.ahead(times - clock.offset_ns)


def _find_time_span(recorded: Recorded, clock: Clock | None) -> tuple[int, int]:
    """Return the times of a capture's first and last packet, by the client's clock."""
    capture = recorded.tables.capture
    ends = np.array([capture["first_time_ns"] or 0, capture["last_time_ns"] or 0], dtype=np.int64)
    first, last = ends if clock is None else convert_to_client(clock, ends)
    return int(first), int(last)
