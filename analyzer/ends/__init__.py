"""Two captures of the same connections, taken at two places: one clock, time on the way, and where packets were lost."""

from __future__ import annotations

from .together import analyze_ends
from .vantages import vantages

__all__ = ["analyze_ends", "vantages"]
