"""Markdown out of foreign text: nothing from a capture may become a link, a mention, a reference or markup.

Trackers turn more into links than CommonMark does: `@name`, `#12`, `owner/name#12`, `GH-12`, commit hashes, bare
addresses, `:shortcodes:`. They do so behind the parser, where a backslash does not help; they leave alone what is code.
So only words and figures stay as they are, and every other word of foreign text is put into code.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ...analyzer.model.text import safe

LONGEST_WORD = 160
"""Characters of a word of foreign text that are shown."""
LONGEST_TEXT = 3_000
"""Characters of a sentence with foreign text that are shown."""

_WORD = re.compile(r"[A-Za-zµ]+(?:['-][A-Za-z]+)*")
_FIGURE = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d{1,6})(?:\.\d{1,6})?[%x]?")
_OURS = re.compile(r"[A-Z]+(?:_[A-Z]+)+s?|HTTP/2|C\+\+|RPC/s|g?RPCs?")
"""Words of the reports' own that are no foreign text's to be afraid of, whoever uses them."""
_HASH = re.compile(r"[a-fA-F]{7,}")
_AROUND = re.compile(r"""(["(']*)(.*?)([.,;:!?)"'%]*)""", re.DOTALL)
_LIST = re.compile(r"\d+[.)]")
_TICKS = re.compile("`+")
_TURNING = ("R", "AL", "AN")
"""Classes of characters that change the direction of the line around them (Unicode standard annex 9)."""
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Printable characters that show nothing."""


def visible(text: str) -> str:
    """Text in which nothing is hidden, stands on other characters, or turns the line around."""
    if text.isascii():
        return safe(text)
    return "".join(c.encode("unicode_escape").decode() if _odd(c) else c for c in safe(text))


def _odd(c: str) -> bool:
    return not c.isascii() and (
        c in _BLANK or unicodedata.bidirectional(c) in _TURNING or unicodedata.category(c)[0] == "M"
    )


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def code(text: str, most: int = LONGEST_WORD) -> str:
    """Foreign text as a code span (CommonMark 0.31.2 section 6.1); a pipe is escaped, for tables end cells at it."""
    if not text:
        return "(empty)"
    inside = visible(text[:most])[:most].replace("|", r"\x7c")
    ticks = "`" * (max(map(len, _TICKS.findall(inside)), default=0) + 1)
    space = " " if inside[0] in "` " or inside[-1] in "` " else ""
    rest = f"… ({len(text):,} characters)" if len(text) > most else ""
    return f"{ticks}{space}{inside}{space}{ticks}{rest}"


def prose(text: str, most: int = LONGEST_TEXT) -> str:
    """A sentence with foreign text in it: words and figures as they are, everything else as code."""
    words = visible(text[:most])[:most].split()
    told = [_word(word, first=place == 0) for place, word in enumerate(words)]
    return " ".join(told) + (f" … ({len(text):,} characters)" if len(text) > most else "")


def sentence(text: str, most: int = LONGEST_TEXT) -> str:
    """`prose` that begins with a capital."""
    told = prose(text, most)
    return told[:1].upper() + told[1:]


def _word(word: str, *, first: bool) -> str:
    if word == "->":
        return "→"
    match = _AROUND.fullmatch(word)
    before, core, after = match.groups() if match else ("", word, "")
    if first and _LIST.fullmatch(word):
        return code(word)
    word_like = _WORD.fullmatch(core) and not _HASH.fullmatch(core)
    if not core or word_like or _FIGURE.fullmatch(core) or _OURS.fullmatch(core):
        return word if len(word) <= LONGEST_WORD else code(word)
    return f"{before}{code(core)}{after}"


def fence(text: str, language: str = "text") -> str:
    """Lines as a code block that none of them can end (CommonMark 0.31.2 section 4.5)."""
    lines = [visible(line) for line in text.splitlines()]
    ticks = "`" * max(3, 1 + max((len(run) for line in lines for run in _TICKS.findall(line)), default=0))
    return "\n".join([ticks + language, *lines, ticks])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table of cells that are Markdown already; `right` names the columns of figures."""
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def items(lines: Iterable[str]) -> str:
    """A list of lines that are Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def folded(summary: str, text: str) -> str:
    """What is there to be opened by who wants it; `summary` is plain text of ours."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


class Block(Struct, frozen=True):
    """A part of a page."""

    text: str
    """Markdown; nothing for a part that is empty."""
    name: str = ""
    """What the note calls it when it is left out."""
    rank: int = 0
    """What is left out first has the largest; 0 is never left out."""


def fitting(blocks: Sequence[Block], most: int, where: str) -> str:
    """Blocks one below the other in fewer than `most` bytes: the least important ones are left out, and a note says so.

    `where` tells where they are to be found. A page whose blocks of rank 0 are too long alone ends in their middle.
    """
    kept, left = [block for block in blocks if block.text], list[Block]()
    while len(_page(kept, left, where).encode()) >= most and any(block.rank for block in kept):
        least = max(enumerate(kept), key=lambda item: (item[1].rank, item[0]))[0]
        left.append(kept.pop(least))
    page = _page(kept, left, where)
    return page if len(page.encode()) < most else _page([_cut(kept, most)], left, where)


def _page(kept: Sequence[Block], left: Sequence[Block], where: str) -> str:
    names = list(dict.fromkeys(block.name for block in reversed(left)))
    note = [f"Left out for length: {', '.join(names)}; {where}."] if names else []
    return "\n\n".join([*(block.text for block in kept), *note]) + "\n"


def _cut(kept: Sequence[Block], most: int) -> Block:
    """No report comes to this: every block is bounded."""
    lines, room = [], most - 2_000
    for line in "\n\n".join(block.text for block in kept).splitlines():
        room -= len(line.encode()) + 1
        if room < 0:
            break
        lines.append(line)
    return Block("\n".join(lines))
