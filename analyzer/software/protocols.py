"""Protocols other than HTTP/2 by the first line that their servers send."""

import re

_LINES = (
    ("as Redis", r"-(ERR|NOAUTH|DENIED|WRONGPASS)\b"),
    ("as SSH", r"SSH-\d"),
    ("as SMTP or FTP", r"220[ -]"),
    ("as IMAP", r"\* (OK|BYE)\b"),
    ("as POP3", r"\+OK\b"),
    ("as HTTP/1", r"HTTP/1\.\d"),
    ("with a web page", r"<(!doctype|html|head)"),
    ("as AMQP", r"AMQP"),
    ("as memcached", r"(ERROR|CLIENT_ERROR .*)$"),
    ("as PostgreSQL", r"S?FATAL\b"),
    ("as MySQL", r"\d+\.\d+\.\d+([-.+]\S*)?$|.*\b(MySQL|MariaDB)\b"),
    ("as NATS", r"INFO \{"),
)
"""Redis serialization protocol specification; RFC 4253, 5321, 959, 3501, 1939; AMQP 0-9-1; memcached's protocol.txt;
PostgreSQL 16 (message formats), MySQL 8.0 (handshake packet); NATS client protocol."""


def name_protocol(line: str) -> str:
    """Say how a server answers that begins with such a line: `as Redis`."""
    return next((name for name, pattern in _LINES if re.match(pattern, line, re.IGNORECASE)), "with another protocol")
