"""Render a comparison as one page that loads and sends nothing, in the style of the page of one capture."""

from ...html import page
from .. import words
from ..comparison import Comparison
from . import charts

MOST_ROWS = 200
"""Most rows of a table."""


def render(comparison: Comparison) -> str:
    """Render the page as text."""
    return page.render_plain(__package__, "compare.html.j2", c=comparison, words=words, charts=charts, most=MOST_ROWS)
