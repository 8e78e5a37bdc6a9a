"""Connections of which it is a guess who the client is."""

import numpy as np

from .. import _core
from ..tables import Mask, Tables

_PORTS = _core.ROLES_FROM.index("ports")
_EPHEMERAL = 32_768
"""First port that Linux gives to clients (net.ipv4.ip_local_port_range)."""
_GRPC_PORT = 50_051
"""The port of gRPC's own examples and guides."""


def mark_guessed_roles(tables: Tables) -> Mask:
    """Mark connections whose two ports may both be a client's, where no other connection to that server shows more."""
    c = tables.connections
    guessed = (c.roles_from == _PORTS) & (c.server_port != _GRPC_PORT)
    guessed &= np.minimum(c.client_port, c.server_port) >= _EPHEMERAL
    if not guessed.any():
        return np.asarray(guessed)
    servers = c.server_ip.astype(np.int64) << 16 | c.server_port
    return np.asarray(guessed & ~np.isin(servers, servers[c.roles_from != _PORTS]))
