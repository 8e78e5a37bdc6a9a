"""Divide RPC time with both captures: client, network up, server, network down, and the causes of blocked intervals.

The client's capture gives the causes until the client has sent the request. The server's capture gives them from when
the request is complete at the server until the server has sent the response. Each capture uses its own clock. The
rest is one-way delay up and down. The delays of the packets that completed the request and the response are network
time; what exceeds them passed until lost bytes had been retransmitted. Only the division of the network time into up
and down depends on the clock offset. A budget adds up to the RPC's duration to the nanosecond.

If the server responds before the request has ended, the RPC goes back and forth several times. Then the time that the
client's capture calls network or server is divided: the server's part is that of the server's capture, the way up is
the delay of the packets that the server answered, and the way down is the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from .. import _core
from ..model.budget import CAUSES
from ..tables import BEGUN_BEFORE, COMPLETE, TOUCHES_GAP, Ints, Mask
from ..tables.grouping import take_rows
from .connections import Pair
from .recorded import Recorded, StreamFrames

SPLIT_CAUSES = (*CAUSES, "network_up", "network_down")
"""Causes of a budget with both ends known; `network` is what could not be divided."""

_NETWORK, _SERVER, _LOSS = CAUSES.index("network"), CAUSES.index("server"), CAUSES.index("loss_recovery")
_AT_SERVER = _core.VANTAGES.index("server")


class Delays(Struct, frozen=True, eq=False):
    """One-way delays by packet number in the receiving capture; -1 where unknown."""

    up: Ints
    """Nanoseconds, of the client's packets, by number in the server's capture."""
    down: Ints
    """Nanoseconds, of the server's packets, by number in the client's capture."""
    sent_up: Ints
    """When those packets were sent, by the client's clock."""
    sent_down: Ints
    """When those packets were sent, by the server's clock."""
    repeats: Mask
    """Whether the server's packet is a retransmission, by number in the client's capture."""
    by_client: Callable[[Ints], Ints]
    """Converts times of the server's clock to the client's."""


class Split(Struct, frozen=True, eq=False):
    """Budgets of the client's RPC rows with both ends known."""

    budgets: Ints
    """Nanoseconds per RPC and cause of `SPLIT_CAUSES`; each row adds up to the RPC's duration."""
    divided: Mask
    """RPCs whose network time is divided and whose server time comes from the server's capture."""


def split(client: Recorded, server: Recorded, pairs: Sequence[Pair], delays: Delays) -> Split:
    """Divide the network time of all RPCs that both captures hold whole."""
    own = client.tables.rpc_budgets
    budgets = np.concatenate([own, np.zeros((len(own), 2), dtype=np.int64)], axis=1)
    both = _same_rpcs(client, server, pairs)
    mine, theirs = both
    turns = _turns(client, server, mine, theirs, delays)
    single, by_turn = _single(client, server, both, delays), _by_turns(client, server, both, turns)
    for rows, divided in (by_turn, single):
        budgets[mine[rows]] = divided[rows]
    known = np.zeros(len(own), dtype=bool)
    known[mine[by_turn[0]]] = True
    known[mine[single[0]]] = True
    return Split(budgets, known)


def _single(client: Recorded, server: Recorded, both: tuple[Ints, Ints], delays: Delays) -> tuple[Mask, Ints]:
    """Compute budgets of RPCs whose response begins after their request has ended, and a mask of these RPCs."""
    (mine, theirs), (here, there) = both, (client.tables, server.tables)
    asked, answered = here.request_budgets[mine], there.rpc_budgets[theirs] - there.request_budgets[theirs]
    left = here.rpcs.start_time_ns[mine] + asked.sum(axis=1)
    came = there.rpcs.start_time_ns[theirs] + there.request_budgets[theirs].sum(axis=1)
    replied = came + answered.sum(axis=1)
    # the packet that completes a request or response may have been sent later than the rest, because of a loss
    last_up, last_down = there.request_ends[theirs], here.rpcs.last_packet[mine]
    late_up = np.maximum(delays.sent_up[last_up] - left, 0)
    late_down = np.maximum(delays.sent_down[last_down] - replied, 0)
    came, ends = delays.by_client(came), delays.by_client(replied)
    # the clocks may drift: the difference goes to the longest part, so that a budget still adds up
    answered[np.arange(len(mine)), answered.argmax(axis=1)] += ends - came - answered.sum(axis=1)
    at_server = server.tables.connections.vantage[there.rpcs.connection[theirs]] == _AT_SERVER
    # in a capture taken at the server, the path between capture point and server belongs to the server
    answered[at_server, _SERVER] += answered[at_server, _NETWORK]
    answered[at_server, _NETWORK] = 0
    up = came - left - late_up
    down = here.rpcs.start_time_ns[mine] + here.rpcs.duration_ns[mine] - ends - late_down
    known = (delays.up[last_up] >= 0) & (delays.down[last_down] >= 0) & (answered >= 0).all(axis=1)
    budgets = np.concatenate([asked + answered, np.stack([up, down], axis=1)], axis=1)
    budgets[:, _LOSS] += late_up + late_down
    return known & (up >= 0) & (down >= 0) & _answer_follows(client, server, both), budgets


def _answer_follows(client: Recorded, server: Recorded, both: tuple[Ints, Ints]) -> Mask:
    """Mark RPCs whose first frame of the server comes after the end of the request in both captures."""
    follows = np.ones(len(both[0]), dtype=bool)
    for recorded, rows in zip((client, server), both, strict=True):
        frames, which = _of_rpcs(recorded, rows)
        end = recorded.tables.request_ends[rows].astype(np.int64)
        follows &= end > 0
        early = (frames.direction == 1) & (frames.first_packet < end[which])
        follows[which[early]] = False
    return follows


def _by_turns(client: Recorded, server: Recorded, both: tuple[Ints, Ints], turns: _Turns) -> tuple[Mask, Ints]:
    """Compute budgets of RPCs that go back and forth, and a mask of those that could be divided."""
    mine, theirs = both
    own = client.tables.rpc_budgets[mine]
    servers = server.tables.rpc_budgets[theirs, _SERVER]
    network = own[:, _NETWORK] + own[:, _SERVER] - servers
    down = network - turns.up
    late = np.where(turns.repeated, np.maximum(down - turns.down, 0), 0)
    budgets = np.concatenate([own, np.stack([turns.up, down - late], axis=1)], axis=1)
    budgets[:, _SERVER], budgets[:, _NETWORK] = servers, 0
    budgets[:, _LOSS] += late
    return turns.known & (network >= turns.up), budgets


def _same_rpcs(client: Recorded, server: Recorded, pairs: Sequence[Pair]) -> tuple[Ints, Ints]:
    """Find the RPCs that both captures hold from first to last byte; return their rows in each capture."""
    row_of = np.full(len(server.tables.connections.protocol), -1)
    for pair in pairs:
        if not pair.swapped:
            row_of[pair.second] = pair.first
    keys, rows = [], []
    for recorded, connection in ((client, None), (server, row_of)):
        rpcs = recorded.tables.rpcs
        number = rpcs.connection.astype(np.int64)
        number = number if connection is None else connection[number]
        whole = (rpcs.flags & (COMPLETE | BEGUN_BEFORE | TOUCHES_GAP) == COMPLETE) & (number >= 0)
        rows.append(np.flatnonzero(whole))
        keys.append((number << 32 | rpcs.stream)[whole])
    _, at, other = np.intersect1d(keys[0], keys[1], return_indices=True)
    return rows[0][at], rows[1][other]


class _Turns(Struct, frozen=True, eq=False):
    """One-way delays of each RPC that both captures hold."""

    known: Mask
    """RPCs with the same frames in both captures, and known delays."""
    up: Ints
    """One-way delays of the client's packets that the server answered, summed per RPC."""
    down: Ints
    """One-way delays of the first bytes of the server's answers, summed per RPC."""
    repeated: Mask
    """RPCs with bytes of the server in a retransmitted packet."""


def _turns(client: Recorded, server: Recorded, mine: Ints, theirs: Ints, delays: Delays) -> _Turns:
    """Sum up the one-way delays of each RPC, by the frames of its stream."""
    here = _of_rpcs(client, mine)
    there = _of_rpcs(server, theirs)
    size = len(mine)
    counts = [np.bincount(which * 2 + f.direction, minlength=2 * size) for f, which in (here, there)]
    known: Mask = (counts[0] == counts[1]).reshape(size, 2).all(axis=1) if size else np.zeros(0, dtype=bool)
    (own, rpc), (far, _) = _only(here, known), _only(there, known)
    place = np.where(own.direction == 0, own.last_packet, own.first_packet)
    order = np.lexsort((np.arange(len(place)), place, rpc))
    before, after = order[:-1], order[1:]
    passed = (rpc[before] == rpc[after]) & (own.direction[before] == 0) & (own.direction[after] == 1)
    asked, answered = before[passed], after[passed]
    up = delays.up[far.last_packet[asked]]
    down = delays.down[own.first_packet[answered]]
    np.logical_and.at(known, rpc[asked], (up >= 0) & (down >= 0))
    crossed = far.first_packet[answered] < far.last_packet[asked]  # the server sent it before that request arrived
    sums = np.zeros((2, size), dtype=np.int64)
    np.add.at(sums[0], rpc[asked], np.where(crossed, 0, up))
    np.add.at(sums[1], rpc[answered], down)
    servers = np.flatnonzero(own.direction == 1)
    repeated = np.zeros(size, dtype=bool)
    again = delays.repeats[own.first_packet[servers]] | delays.repeats[own.last_packet[servers]]
    np.logical_or.at(repeated, rpc[servers], again)
    return _Turns(known, sums[0], sums[1], repeated)


def _of_rpcs(recorded: Recorded, rows: Ints) -> tuple[StreamFrames, Ints]:
    """Return the frames of some RPCs, ordered by RPC and direction, and the index into `rows` of each frame's RPC."""
    rpcs, frames = recorded.tables.rpcs, recorded.frames
    keys = rpcs.connection[rows].astype(np.int64) << 32 | rpcs.stream[rows]
    order = np.argsort(keys)
    wanted = frames.connection << 32 | frames.stream
    at = np.searchsorted(keys[order], wanted)
    at[at == len(keys)] = 0
    found = np.flatnonzero(keys[order][at] == wanted) if len(keys) else np.zeros(0, dtype=np.int64)
    which = order[at[found]]
    by_rpc = np.argsort(which * 2 + frames.direction[found], kind="stable")
    return take_rows(frames, found[by_rpc]), which[by_rpc]


def _only(frames: tuple[StreamFrames, Ints], known: Mask) -> tuple[StreamFrames, Ints]:
    keep = known[frames[1]]
    return take_rows(frames[0], keep), frames[1][keep]
