"""How long connections took before their first RPCs."""

import numpy as np

from ..tables import Ints, Tables
from . import attempts
from .unanswered import INITIAL_TIMEOUT_NS


def find_first_rpcs(tables: Tables) -> Ints:
    """Find the row of each connection's first RPC, -1 for none."""
    first = np.full(len(tables.connections.rpcs), -1, dtype=np.int64)
    # in reverse, so that the first row of each connection is written last
    first[tables.rpcs.connection[::-1]] = np.arange(len(tables.rpcs.connection))[::-1]
    return first


def measure_setup(tables: Tables) -> int:
    """Add up the times from the first SYN of each connection with RPCs to when it was open, TLS with it, nanoseconds.

    A connection after failed attempts counts from the first of them.
    """
    c, s = tables.connections, tables.setups
    rows = np.flatnonzero((c.rpcs > 0) & (s.syns > 0) & (s.syn_ack_packet > 0))
    if not len(rows):
        return 0
    failed = attempts.find_attempts_before(tables, attempts.find_failures(tables, INITIAL_TIMEOUT_NS))
    first = np.array([failed.get(row, [row])[0] for row in rows.tolist()], dtype=np.int64)
    shaken = np.where(c.tls_handshake_ns >= 0, c.tls_hello_time_ns + c.tls_handshake_ns, 0)
    ready = np.maximum(s.syn_ack_time_ns, shaken)[rows]
    return int(np.maximum(ready - c.first_time_ns[first], 0).sum())
