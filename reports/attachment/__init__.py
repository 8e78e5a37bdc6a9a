"""The text of a bug report after a project's own issue form: filled as far as packets tell, the rest marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...analyzer.model.finding import Finding
from ..shared.markdown_escape import Block, fitting
from . import sections
from .contents import Contents, Recorded
from .forms import FORMS, WORDS, Form, implementations, named, of_implementation

__all__ = [
    "FORMS",
    "Contents",
    "Form",
    "Recorded",
    "blanks",
    "foreign",
    "named",
    "of_implementation",
    "render",
    "title",
]

MOST_BYTES = 60_000
"""Length that the text stays below: GitHub takes 65,536 characters."""
WHERE = "see `report.html` and `analysis.json`"
"""Where parts are that were left out for length."""


def render(contents: Contents) -> str:
    """The issue's text as Markdown; no file of a capture in it, and nothing that only the reporter knows."""
    blocks = [block for section in _sections(contents) for block in section]
    where = "the capture has them" if {"html", "json"} <= contents.without else WHERE
    return fitting([Block(_first(contents)), *blocks], MOST_BYTES, where)


def blanks(contents: Contents) -> int:
    """How many places are to be filled."""
    return sum(block.text.count(sections.MARK) for section in _sections(contents) for block in section)


def _sections(contents: Contents) -> Iterator[list[Block]]:
    for section in contents.form.sections:
        blocks = [block for part in section.parts for block in _part(part, contents)]
        yield [Block(section.heading), *blocks]


def _part(part: str, contents: Contents) -> Iterable[Block]:
    """A part, or the form's own words."""
    return [Block(part[1:])] if part.startswith(WORDS) else sections.PARTS[part](contents)


def _first(contents: Contents) -> str:
    """What the reporter reads first; nobody else sees it."""
    form = contents.form
    after = f", after the form {form.source}" if form.source else ""
    lines = [
        f"Written by grpcdiag {contents.version} from a scrubbed packet capture{after}.",
        f"Suggested title: {title(contents)}",
        f"Before you post: fill the {blanks(contents)} blanks; the comment behind each says with what.",
        *foreign(contents),
        "Delete what you do not want to say. Comments like this one are not shown.",
    ]
    return "<!--\n" + "\n".join(lines) + "\n-->"


def title(contents: Contents) -> str:
    """A title of plain words for the issue."""
    finding = _first_finding(contents)
    text = finding.title if finding else "what you saw, in a few words"
    plain = _plain(text)
    return plain[:1].upper() + plain[1:]


def _plain(text: str) -> str:
    """Words that neither end a comment nor call anybody."""
    return re.sub(r"-{2,}", "-", re.sub(r"[^A-Za-z0-9 ,.:;%()/'+-]", "", text[:200]))


def foreign(contents: Contents) -> Iterator[str]:
    """What speaks against posting it to this project, for the reporter to think about."""
    finding, form = _first_finding(contents), contents.form
    seen = any(name.startswith(form.implementations) for name in implementations(contents.analysis))
    if finding is None:
        yield "grpcdiag found nothing that costs time: say what you saw that the packets do not show."
    elif form.knobs and seen and not any(r.implementation.startswith(form.knobs) for r in finding.remedies):
        whose = _plain(", ".join(dict.fromkeys(remedy.implementation for remedy in finding.remedies))) or "nobody"
        yield (
            f"No setting of {form.name} is known to change {finding.id} (whose are: {whose}): "
            "say why you think the library should act otherwise, or ask elsewhere."
        )
    if form.implementations and not seen:
        yield f"No end of the captured connections is known to run {form.name}."


def _first_finding(contents: Contents) -> Finding | None:
    analysis = contents.analysis
    return next((f for f in analysis.findings if f.id == analysis.verdict.finding), None)
