"""Count HTTP/2 requests that are no RPCs by path and HTTP status: health checks, REST through the same proxy."""

import numpy as np

from ..model.analysis import OtherRequest
from ..tables import Tables

MOST = 100
"""Pairs of path and HTTP status in a report."""


def list_other_requests(tables: Tables) -> tuple[OtherRequest, ...]:
    """Count the requests, the most frequent pairs of path and HTTP status first."""
    rows = tables.other_requests
    pairs = rows.path.astype(np.int64) << 16 | rows.http_status
    _, first, pair, requests = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    longest_ns = np.full(len(first), -1, dtype=np.int64)
    np.maximum.at(longest_ns, pair, rows.duration_ns)
    paths = dict(enumerate(tables.paths))
    return tuple(
        OtherRequest(
            path=paths.get(int(rows.path[first[one]])),
            http_status=int(rows.http_status[first[one]]) or None,
            requests=int(requests[one]),
            longest_ns=int(longest_ns[one]) if longest_ns[one] >= 0 else None,
            first_packet=int(rows.first_packet[first[one]]),
        )
        for one in np.lexsort((first, -requests))[:MOST]
    )
