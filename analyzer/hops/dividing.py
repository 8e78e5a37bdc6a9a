"""Divide the time of a call through a proxy into time held by the proxy, time of the leg behind it, and the rest.

The call lasts as long as its leg before the proxy. While that leg waits for the proxy to respond, the time has the
causes of the leg behind; what exceeds that leg's duration is time that the proxy held the call. The proxy also holds it
while the client sends further messages and the proxy has not yet passed on the first one. All other time keeps its
cause.
"""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ..model.budget import CAUSES
from ..tables import Connections, Ints, Mask, Rpcs, Tables
from .matching import Joined

_CLIENT, _SERVER, _PROXY = (CAUSES.index(name) for name in ("client", "server", "proxy"))
_TRANSPORT = [number for number, name in enumerate(CAUSES) if name not in ("client", "server", "proxy")]


class Messages(Struct, frozen=True, eq=False):
    """Times at the capture point of each RPC's first messages and of the end of its request."""

    first_ns: Ints
    """When the request's first message was complete; without messages, when its HEADERS were."""
    first_packet: Ints
    last_ns: Ints
    """When the request ended."""
    answered_ns: Ints
    """When the response's first message began; without messages, when the RPC ended."""


class Held(Struct, frozen=True, eq=False):
    """Calls through a proxy, and the time for which it held them."""

    front: Ints
    """Row of the leg before the proxy."""
    first: Ints
    """Row of the first leg behind it."""
    last: Ints
    """Row of the leg behind it that ended last."""
    legs: Ints
    """Number of legs behind it: more than one if the proxy retried."""
    up_ns: Ints
    """From the first complete request message (without messages, from HEADERS) until the leg behind began."""
    sending_ns: Ints
    """The part of `up_ns` before the client ended the request."""
    waited_for_end: Mask
    """Whether the leg behind began only after the client had ended the request."""
    held_ns: Ints
    """Time with the cause `proxy` in the call's budget."""
    answering_ns: Ints
    """Time in which the server sent its response, if the proxy passed the first message on only afterwards; else 0."""
    down_ns: Ints
    """From the end of the leg behind to the call's end, plus `answering_ns`, less the transport of the leg before."""


def divide(tables: Tables, joined: Joined, messages: Messages) -> tuple[Ints, list[Held]]:
    """Divide the time of all calls; return the budgets of all RPCs, and one `Held` per depth of proxies, deepest first.

    Calls through several proxies are divided from the last proxy to the first.
    """
    budgets = np.array(tables.rpc_budgets)
    depth = _measure_depth(joined.parent)
    found = []
    for level in range(int(depth.max(initial=0)), 0, -1):
        held, behind = _measure(tables, np.flatnonzero(depth == level), joined, messages, budgets)
        budgets[held.front], own = _divide(budgets[held.front], behind, held)
        found.append(replace(held, held_ns=own))
    return budgets, found


def _measure_depth(parent: Ints) -> Ints:
    """Count the proxies before each RPC."""
    depth, at = np.zeros(len(parent), dtype=np.int64), parent.copy()
    while (at >= 0).any():
        depth += at >= 0
        at = np.where(at >= 0, parent[at], -1)
    return depth


def _measure(tables: Tables, behind: Ints, joined: Joined, messages: Messages, budgets: Ints) -> tuple[Held, Ints]:
    """Measure how long the proxy held the calls of the legs `behind`; add up the budgets of these legs by call."""
    rpcs, connections = tables.rpcs, tables.connections
    ends = rpcs.start_time_ns + rpcs.duration_ns
    order = behind[np.lexsort((rpcs.start_time_ns[behind], joined.parent[behind]))]
    front, begin, legs = np.unique(joined.parent[order], return_index=True, return_counts=True)
    place = np.repeat(np.arange(len(front)), legs)
    last = order[np.lexsort((ends[order], place))][begin + legs - 1]
    sums = np.zeros((len(front), len(CAUSES)), dtype=np.int64)
    np.add.at(sums, place, budgets[order])
    first = order[begin]
    # convert to times at the proxy: the capture may have been taken elsewhere
    to_proxy, from_proxy = _measure_ways(connections, rpcs, front, first)
    left = rpcs.start_time_ns[first] - from_proxy
    came = np.minimum(messages.first_ns[front] + to_proxy, left)
    sending = np.clip(np.minimum(messages.last_ns[front] + to_proxy, left) - came, 0, None)
    transport = budgets[front][:, _TRANSPORT].sum(axis=1)
    over = ends[last] + from_proxy
    late = messages.answered_ns[front] - to_proxy >= over
    answering = np.where(late, np.maximum(ends[last] - messages.answered_ns[last], 0), 0)
    down = np.maximum(ends[front] - to_proxy - over + answering - transport, 0)
    ended = messages.last_ns[front] + to_proxy <= left
    return Held(front, first, last, legs, left - came, sending, ended, np.zeros_like(down), answering, down), sums


def _measure_ways(connections: Connections, rpcs: Rpcs, front: Ints, back: Ints) -> tuple[Ints, Ints]:
    """Estimate the one-way delays between capture point and proxy: half of the smallest round trips."""
    near = connections.near_server_rtt_ns[rpcs.connection[front]], connections.near_client_rtt_ns[rpcs.connection[back]]
    to_proxy, from_proxy = (np.maximum(trip, 0) // 2 for trip in near)
    return to_proxy, from_proxy


def _divide(own: Ints, behind: Ints, held: Held) -> tuple[Ints, Ints]:
    """Divide the time of calls by the budgets of both legs; return the budgets, and this proxy's time.

    Each row adds up to the call's duration as before.
    """
    transport = own[:, _TRANSPORT].sum(axis=1)
    sending = np.minimum(np.maximum(held.sending_ns - transport, 0), own[:, _CLIENT])
    waited = own[:, _SERVER]
    certain = np.minimum(np.maximum(held.up_ns - held.sending_ns - transport, 0) + held.down_ns, waited)
    # the proxy is the client of the leg behind: that leg's client time is the proxy's or the real client's
    needed = np.where(np.arange(behind.shape[1]) == _CLIENT, 0, behind)
    whole = needed.sum(axis=1)
    taken = np.minimum(whole, waited - certain)
    share = np.where(whole > 0, taken / np.maximum(whole, 1), 0)
    scaled = np.where((taken == whole)[:, None], needed, (needed * share[:, None]).astype(np.int64))
    rows = np.arange(len(own))
    scaled[rows, scaled.argmax(axis=1)] += taken - scaled.sum(axis=1)
    divided = own + scaled
    divided[:, _SERVER] -= waited
    divided[:, _CLIENT] -= sending
    mine = sending + waited - taken
    divided[:, _PROXY] += mine
    return divided, mine
