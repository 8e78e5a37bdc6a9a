"""RPC time divided with both ends known: client, network up, server, network down, and the causes of waits.

The client's capture sees how long the client held the ball, the server's how long the server did; each by its own
clock. What the client's capture has as network or server time is divided: the server's part is what the server's
capture says, the rest was the network's. Of that, the way up is the time of the packets that completed what the server
answered, and the way down what is left, less the time for packets that were lost. So a budget adds up to the RPC's
duration to the nanosecond, and only the way up depends on how the clocks are put in relation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from ..budget import CAUSES
from ..tables import COMPLETE, TOUCHES_GAP, Ints
from .connections import Pair
from .matching import Mask
from .recorded import Recorded, StreamFrames

SPLIT_CAUSES = (*CAUSES, "network_up", "network_down")
"""Causes of a budget with both ends known; `network` is what could not be divided."""

_NETWORK, _SERVER, _LOSS = CAUSES.index("network"), CAUSES.index("server"), CAUSES.index("loss_recovery")
_UP, _DOWN = len(CAUSES), len(CAUSES) + 1


class Delays(Struct, frozen=True, eq=False):
    """Times on the way by packet number of the capture that received it, -1 where not known."""

    up: Ints
    """Nanoseconds of the client's packets, by number in the server's capture."""
    down: Ints
    """Nanoseconds of the server's packets, by number in the client's capture."""
    repeats: Mask
    """Whether it was sent again after a loss, by number in the client's capture."""


class Split(Struct, frozen=True, eq=False):
    """Budgets of the client's RPC rows with both ends known."""

    budgets: Ints
    """Nanoseconds per RPC and cause of `SPLIT_CAUSES`; each row adds up to the RPC's duration."""
    divided: Mask
    """RPCs whose network time is divided and whose server time is the server's own."""


def split(client: Recorded, server: Recorded, pairs: Sequence[Pair], delays: Delays) -> Split:
    """Divide the network time of all RPCs that both captures hold whole."""
    own = client.tables.rpc_budgets
    budgets = np.concatenate([own, np.zeros((len(own), 2), dtype=np.int64)], axis=1)
    mine, theirs = _same_rpcs(client, server, pairs)
    turns = _turns(client, server, mine, theirs, delays)
    pool = own[mine, _NETWORK] + own[mine, _SERVER]
    servers = server.tables.rpc_budgets[theirs, _SERVER]
    network = pool - servers
    good = turns.known & (network >= turns.up)
    down = network - turns.up
    late = np.where(turns.repeated, np.maximum(down - turns.down, 0), 0)
    rows = mine[good]
    budgets[rows, _SERVER] = servers[good]
    budgets[rows, _NETWORK] = 0
    budgets[rows, _UP] = turns.up[good]
    budgets[rows, _DOWN] = (down - late)[good]
    budgets[rows, _LOSS] += late[good]
    divided = np.zeros(len(own), dtype=bool)
    divided[rows] = True
    return Split(budgets, divided)


def _same_rpcs(client: Recorded, server: Recorded, pairs: Sequence[Pair]) -> tuple[Ints, Ints]:
    """Rows of the RPCs that both captures hold from their first byte to their last."""
    row_of = np.full(len(server.tables.connections.protocol), -1)
    for pair in pairs:
        if not pair.swapped:
            row_of[pair.second] = pair.first
    keys, rows = [], []
    for recorded, connection in ((client, None), (server, row_of)):
        rpcs = recorded.tables.rpcs
        number = rpcs.connection.astype(np.int64)
        number = number if connection is None else connection[number]
        whole = (rpcs.flags & (COMPLETE | TOUCHES_GAP) == COMPLETE) & (number >= 0)
        rows.append(np.flatnonzero(whole))
        keys.append((number << 32 | rpcs.stream)[whole])
    _, at, other = np.intersect1d(keys[0], keys[1], return_indices=True)
    return rows[0][at], rows[1][other]


class _Turns(Struct, frozen=True, eq=False):
    """Per RPC of both captures."""

    known: Mask
    up: Ints
    """Time on the way of the client's packets that the server answered."""
    down: Ints
    """Time on the way of the server's answers' first bytes."""
    repeated: Mask
    """Bytes of the server came with a packet that was sent again."""


def _turns(client: Recorded, server: Recorded, mine: Ints, theirs: Ints, delays: Delays) -> _Turns:
    """How often and how long each RPC was on the way, by the frames of its stream."""
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
    crossed = far.first_packet[answered] < far.last_packet[asked]  # it left before what it seems to answer had come
    sums = np.zeros((2, size), dtype=np.int64)
    np.add.at(sums[0], rpc[asked], np.where(crossed, 0, up))
    np.add.at(sums[1], rpc[answered], down)
    servers = np.flatnonzero(own.direction == 1)
    repeated = np.zeros(size, dtype=bool)
    again = delays.repeats[own.first_packet[servers]] | delays.repeats[own.last_packet[servers]]
    np.logical_or.at(repeated, rpc[servers], again)
    return _Turns(known, sums[0], sums[1], repeated)


def _of_rpcs(recorded: Recorded, rows: Ints) -> tuple[StreamFrames, Ints]:
    """Frames of some RPCs, ordered by RPC and direction, and which RPC each is of."""
    rpcs, frames = recorded.tables.rpcs, recorded.frames
    keys = rpcs.connection[rows].astype(np.int64) << 32 | rpcs.stream[rows]
    order = np.argsort(keys)
    wanted = frames.connection << 32 | frames.stream
    at = np.searchsorted(keys[order], wanted)
    at[at == len(keys)] = 0
    found = np.flatnonzero(keys[order][at] == wanted) if len(keys) else np.zeros(0, dtype=np.int64)
    which = order[at[found]]
    by_rpc = np.argsort(which * 2 + frames.direction[found], kind="stable")
    return _at(frames, found[by_rpc]), which[by_rpc]


def _only(frames: tuple[StreamFrames, Ints], known: Mask) -> tuple[StreamFrames, Ints]:
    keep = known[frames[1]]
    return _at(frames[0], keep), frames[1][keep]


def _at(frames: StreamFrames, rows: Ints | Mask) -> StreamFrames:
    return StreamFrames(*(getattr(frames, name)[rows] for name in StreamFrames.__struct_fields__))
