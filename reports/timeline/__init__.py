"""Connections and RPCs against time."""

from __future__ import annotations

from itertools import chain

from rich.text import Text

from ...analyzer.views.events import sequence
from ...analyzer.views.excerpt import Excerpt
from ..shared.drawing import LEAST_WIDTH, draw
from .head import drawn, ends, head, rpc_line, titled
from .page import Page

__all__ = ["LINES", "render", "slowest"]

LINES = 200
"""Lines drawn unasked."""
_LEAST_LINES = 20
"""Lines of each of several RPCs at least."""


def render(excerpt: Excerpt, *, width: int = 100, colour: bool = False, limit: int = LINES) -> str:
    """The time line as text; `limit` bounds the lines of events, 0 draws all of them and folds nothing."""
    page = _page(excerpt, width)
    parts = chain(head(page), [Text(), page.axis()], page.events(limit), page.legend())
    return draw(parts, width=page.width, colour=colour, wrap=False)


def slowest(excerpts: list[Excerpt], *, width: int = 100, colour: bool = False, limit: int = LINES) -> str:
    """The time lines of the slowest RPCs one below the other; `limit` bounds the lines of all together."""
    pages = [_page(excerpt, width) for excerpt in excerpts]
    each = limit and max(limit // max(len(pages), 1), _LEAST_LINES)
    parts = [titled(excerpts, pages[0])]
    last = -1
    for number, page in enumerate(pages, start=1):
        parts += [Text(), *rpc_line(page, number)]
        parts += ends(page) if page.excerpt.connection != last else []
        parts += [*drawn(page), Text(), page.axis(), *page.events(each)]
        last = page.excerpt.connection
    return draw([*parts, *pages[-1].legend()], width=max(width, LEAST_WIDTH), colour=colour, wrap=False)


def _page(excerpt: Excerpt, width: int) -> Page:
    return Page(excerpt, sequence(excerpt), max(width, LEAST_WIDTH))
