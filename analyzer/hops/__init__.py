"""Calls that pass a proxy: both legs joined into one call, and the time that the proxy held it."""

from __future__ import annotations

from .legs import Legs, explain_unread, find_legs, read_legs

__all__ = ["Legs", "explain_unread", "find_legs", "read_legs"]
