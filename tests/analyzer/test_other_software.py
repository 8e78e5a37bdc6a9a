"""Captures of clients, servers and proxies that are in common use: statuses, verdicts, and what must not be said."""

from __future__ import annotations

from cli_support import run  # noqa: F401
from support import RECORDED

WILD = RECORDED / "wild"
