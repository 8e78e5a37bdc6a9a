"""Draw connections and RPCs as a timeline of text."""

from itertools import chain

from rich.text import Text

from ...analyzer.views.events import sequence
from ...analyzer.views.excerpt import Excerpt
from ..shared.drawing import LEAST_WIDTH, draw
from .head import describe_range, list_ends, list_head, show_rpc, show_title
from .page import Page
from .threads import show_threads

__all__ = ["LINES", "render", "slowest"]

LINES = 200
"""Lines drawn by default."""
_LEAST_LINES = 20
"""Fewest lines for each of several RPCs."""


def render(excerpt: Excerpt, *, width: int = 100, colour: bool = False, limit: int = LINES) -> str:
    """Render the timeline as text; `limit` is the most lines of events, 0 draws all events and folds nothing."""
    page = _make_page(excerpt, width)
    parts = chain(list_head(page), [Text(), page.axis()], page.events(limit), page.legend())
    return draw(parts, width=page.width, colour=colour, wrap=False)


def slowest(excerpts: list[Excerpt], *, width: int = 100, colour: bool = False, limit: int = LINES) -> str:
    """Render the timelines of the slowest RPCs one below the other; `limit` is the most lines of all together."""
    pages = [_make_page(excerpt, width) for excerpt in excerpts]
    each = limit and max(limit // max(len(pages), 1), _LEAST_LINES)
    parts = [show_title(excerpts, pages[0])]
    last = -1
    for number, page in enumerate(pages, start=1):
        parts += [Text(), *show_rpc(page, number)]
        parts += list_ends(page) if page.excerpt.connection != last else []
        parts += [*describe_range(page), *show_threads(page), Text(), page.axis(), *page.events(each)]
        last = page.excerpt.connection
    return draw([*parts, *pages[-1].legend()], width=max(width, LEAST_WIDTH), colour=colour, wrap=False)


def _make_page(excerpt: Excerpt, width: int) -> Page:
    return Page(excerpt, sequence(excerpt), max(width, LEAST_WIDTH))
