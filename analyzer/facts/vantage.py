"""Where a capture was taken: at which host, and how far from each end of a connection."""

from typing import Any

import numpy as np

from .. import _core
from ..tables import Counts, Ints, Mask, Tables


def reaction_ns(tables: Tables, connections: int | Counts, side: int, own_ns: int) -> Any:
    """Tell how long after a packet to `side` its answer may be captured: the way there and back, and its own time."""
    c = tables.connections
    near = c.near_server_rtt_ns if side else c.near_client_rtt_ns
    return np.maximum(near[connections], 0) + own_ns


def senders_are_near(tables: Tables, connections: Counts, directions: Ints, round_trips_ns: Ints) -> bool:
    """Check whether the capture was taken at the senders, where their bursts are seen undistorted.

    Near means at most a fifth of the round trip between the capture point and the sender.
    """
    table = tables.connections
    near = np.where(directions == 0, table.near_client_rtt_ns[connections], table.near_server_rtt_ns[connections])
    return bool((near <= round_trips_ns // 5).all())


NEAR_NS = 200_000
"""A round trip from the capture point to a host this short does not leave its network (heuristic: as in the core)."""
AT = [_core.VANTAGES.index(end) for end in ("client", "server")]
"""Values of `Connections.vantage` by direction."""


def mark_taken_at(tables: Tables, direction: int) -> Mask:
    """Mark connections that were captured at the host that sends in `direction`, or right in front of it."""
    c = tables.connections
    near = (c.near_client_rtt_ns, c.near_server_rtt_ns)[direction]
    return np.asarray((c.vantage == AT[direction]) & (near >= 0) & (near <= NEAR_NS))
