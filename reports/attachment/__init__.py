"""Write a bug report that follows a project's issue form: filled in from the packets, with marked blanks."""

import re
from collections.abc import Iterator

from ..shared.markdown_escape import Block, fitting
from ..shared.quality import find_main
from . import sections
from .contents import Contents as Contents
from .contents import Recorded as Recorded
from .forms import FORMS as FORMS
from .forms import WORDS, implementations
from .forms import Form as Form
from .forms import named as named
from .forms import of_implementation as of_implementation

MOST_BYTES = 60_000
"""Largest text in bytes: GitHub accepts 65,536 characters."""
WHERE = "see `report.html` and `analysis.json`"
"""Where the reader finds parts that were left out for length."""


def render(contents: Contents) -> str:
    """Render the issue's text as Markdown, with blanks for what only the reporter knows."""
    blocks = [block for section in _list_sections(contents) for block in section]
    where = "the capture has them" if {"html", "json"} <= contents.without else WHERE
    return fitting([Block(_write_instructions(contents)), *blocks], MOST_BYTES, where)


def blanks(contents: Contents) -> int:
    """Count the blanks to fill in."""
    return sum(block.text.count(sections.MARK) for section in _list_sections(contents) for block in section)


def _list_sections(contents: Contents) -> Iterator[list[Block]]:
    for section in contents.form.sections:
        blocks = [Block(section.heading)]
        for part in section.parts:  # or the form's own words
            blocks += [Block(part[1:])] if part.startswith(WORDS) else sections.PARTS[part](contents)
        yield blocks


def _write_instructions(contents: Contents) -> str:
    """Write the comment with instructions for the reporter; readers of the issue do not see it."""
    form = contents.form
    after = f", following the form {form.source}" if form.source else ""
    lines = [
        f"Written by grpcdiag {contents.version} from a scrubbed packet capture{after}.",
        f"Suggested title: {title(contents)}",
        f"Before you post: fill in the {blanks(contents)} blanks; the comment after each says with what.",
        *foreign(contents),
        "Delete what you do not want to publish. Comments like this one are not shown.",
    ]
    return "<!--\n" + "\n".join(lines) + "\n-->"


def title(contents: Contents) -> str:
    """Suggest a title of plain words for the issue."""
    finding = find_main(contents.analysis)
    text = finding.title if finding else "what you saw, in a few words"
    plain = _strip_markup(text)
    return plain[:1].upper() + plain[1:]


def _strip_markup(text: str) -> str:
    """Remove characters that could end the comment or mention somebody."""
    return re.sub(r"-{2,}", "-", re.sub(r"[^A-Za-z0-9_ ,.:;%()/'+-]", "", text[:200]))


def foreign(contents: Contents) -> Iterator[str]:
    """List reasons not to post the report to this project, for the reporter to consider."""
    finding, form = find_main(contents.analysis), contents.form
    seen = any(name.startswith(form.implementations) for name in implementations(contents.analysis))
    if finding is None:
        yield "grpcdiag found nothing that costs time: describe what you saw that the packets do not show."
    elif form.knobs and seen and not any(r.implementation.startswith(form.knobs) for r in finding.remedies):
        others = _strip_markup(", ".join(dict.fromkeys(r.implementation for r in finding.remedies))) or "none"
        yield (
            f"No setting of {form.name} is known to change {finding.id} (settings known: {others}): "
            "say why you think the library should behave differently, or ask elsewhere."
        )
    if form.implementations and not seen:
        yield f"No end of the captured connections is known to run {form.name}."
