"""Render a comparison as one page that loads and sends nothing, in the style of the page of one capture."""

import functools
from importlib.resources import files

from jinja2 import FunctionLoader
from markupsafe import Markup

from ....analyzer import _core
from ...html import page, said
from .. import words
from ..comparison import Comparison
from . import charts

MOST_ROWS = 200
"""Most rows of a table."""


def render(comparison: Comparison) -> str:
    """Render the page as text."""
    style, script = page.asset("style.css") + _read_asset("style.css"), page.join_scripts(page.PLAIN_SCRIPTS)
    policy = f"default-src 'none'; img-src data:; style-src '{page.policy_hash(style)}'; "
    policy += f"script-src '{page.policy_hash(script)}'; base-uri 'none'; form-action 'none'"
    text: str = (
        page.environment(_LOADER)
        .get_template("compare.html.j2")
        .render(
            c=comparison,
            said=said,
            words=words,
            charts=charts,
            most=MOST_ROWS,
            policy=Markup(policy),  # made of constants and base64 alone
            style=Markup(style),
            script=Markup(script),
            version=_core.__version__,
        )
    )
    return text


@functools.cache
def _read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


_LOADER = FunctionLoader(lambda name: _read_asset(name) if name == "compare.html.j2" else None)
