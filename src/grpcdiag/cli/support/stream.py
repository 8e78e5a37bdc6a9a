"""Captures that another program sends over TCP: `tcp://HOST:PORT` takes the place of standard input."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from .messages import UNREADABLE, fail, say

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

SCHEME = "tcp://"
CONNECT_S = 10.0
"""Longest time to connect."""
_DEAD_AFTER_S = 60
"""A sender's host that answers no keepalive probe for so long is gone."""
_PIECE = 1 << 18


def connect_stream(files: list[str]) -> list[str]:
    """Connect to the sender that the files name, and let standard input be what it sends; give the files to read."""
    url = next((file for file in files if file.startswith(SCHEME)), None)
    if url is None:
        return files
    if len(files) > 1:
        fail(f"{url} is one capture: give it alone", 2)
    source, target = os.pipe()
    start_copy(connect_first(url), target, url, say)
    os.dup2(source, 0)
    os.close(source)
    return ["-"]


def start_copy(connection: socket.socket, target: int, url: str, tell: Callable[[str], object]) -> None:
    """Copy the stream in a thread until it ends; `tell` is told why it ended early."""
    threading.Thread(target=copy, args=(connection, target, url, tell), name="grpcdiag-stream", daemon=True).start()


def connect_first(url: str) -> socket.socket:
    """Connect to a sender that must be there already, or end the command."""
    try:
        return connect(url, CONNECT_S)
    except OSError as error:
        why = error.strerror or "no answer"
        port = parse_url(url)[1]
        fail(
            f"{url}: cannot connect: {why}: start the sender first, as `tcpdump -U -w - ... | nc -l {port}`", UNREADABLE
        )


def connect(url: str, patience_s: float) -> socket.socket:
    """Connect to a sender. Raises OSError."""
    import socket

    connection = socket.create_connection(parse_url(url), patience_s)
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _DEAD_AFTER_S // 2), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def parse_url(url: str) -> tuple[str, int]:
    """Parse `tcp://HOST:PORT`, or end the command."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port or url.lower() not in (f"{SCHEME}{host}:{port}", f"{SCHEME}[{host}]:{port}"):
        fail(f"{url}: write tcp://HOST:PORT, as tcp://10.0.0.2:9000 or tcp://[::1]:9000", 2)
    return host, port


def copy(connection: socket.socket, target: int, url: str, tell: Callable[[str], object] = say) -> None:
    """Copy the stream until it ends or breaks. What came before a break is a truncated capture, which can be read."""
    received = 0
    try:
        while piece := connection.recv(_PIECE):
            received += len(piece)
            _write(target, piece)
    except BrokenPipeError:
        return  # the reader has ended, and says why
    except OSError as error:
        tell(f"{url}: the connection broke after {received:,} bytes: {error.strerror}")
    else:
        if not received:
            tell(f"{url}: the sender closed the connection and sent nothing")
    finally:
        os.close(target)
        connection.close()


def _write(target: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(target, piece) :]
