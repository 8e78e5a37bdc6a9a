"""One page that holds everything: text and tables for everybody, and a time line for browsers that run its script."""

from __future__ import annotations

from ...analyzer.model.analysis import Analysis
from ...analyzer.views.page_data import PageData, halve_page_data
from .page import assembled

MOST_BYTES = 4_900_000
"""Size of the page: below what people can attach to an issue of most trackers, and quick to open."""


def render(analysis: Analysis, page: PageData) -> str:
    """The page; when it would be too large, with less detail, as the page says."""
    text = assembled(analysis, page)
    while len(text) > MOST_BYTES and len(page.rpcs.stream) + len(page.packets.packet) + len(page.waits.stream):
        page = halve_page_data(page)
        text = assembled(analysis, page)
    return text


__all__ = ["MOST_BYTES", "render"]
