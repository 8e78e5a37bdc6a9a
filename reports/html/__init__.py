"""The HTML report: one page with text and tables, and a timeline that the page's own script draws."""

from ...analyzer.model.analysis import Analysis
from ...analyzer.views.page_data import PageData, halve_page_data
from .page import build_page
from .page import prepare as prepare

MOST_BYTES = 4_900_000
"""Largest size of the page: most issue trackers accept it as an attachment, and it opens quickly."""


def render(analysis: Analysis, page: PageData) -> str:
    """Render the page. A page that would be too large gets less detail, and says so."""
    text = build_page(analysis, page)
    while len(text) > MOST_BYTES and len(page.rpcs.stream) + len(page.packets.packet) + len(page.waits.stream):
        page = halve_page_data(page)
        text = build_page(analysis, page)
    return text
