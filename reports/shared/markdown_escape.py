"""Escape foreign text for Markdown: nothing from a capture may become a link, a mention, a reference or markup.

Issue trackers turn more into links than CommonMark does: `@name`, `#12`, `owner/name#12`, `GH-12`, commit hashes, bare
addresses, `:shortcodes:`. They do so after parsing, so a backslash does not help, but they leave code spans alone.
So only words and figures stay as they are. Every other word of foreign text becomes a code span.
"""

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
"""Words of the reports that are harmless in foreign text too."""
_HASH = re.compile(r"[a-fA-F]{7,}")
_AROUND = re.compile(r"""(["(']*)(.*?)([.,;:!?)"'%]*)""", re.DOTALL)
_LIST = re.compile(r"\d+[.)]")
_TICKS = re.compile("`+")
_TURNING = ("R", "AL", "AN")
"""Classes of characters that change the writing direction (Unicode standard annex 9)."""
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Printable characters that are invisible."""


def visible(text: str) -> str:
    """Escape characters that are invisible, combine with others, or change the writing direction."""
    if text.isascii():
        return safe(text)
    return "".join(c.encode("unicode_escape").decode() if _is_odd(c) else c for c in safe(text))


def _is_odd(c: str) -> bool:
    return not c.isascii() and (
        c in _BLANK or unicodedata.bidirectional(c) in _TURNING or unicodedata.category(c)[0] == "M"
    )


def shortened(text: str, most: int) -> str:
    """Cut a long text and add its length."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def code(text: str, most: int = LONGEST_WORD) -> str:
    """Write foreign text as a code span (CommonMark 0.31.2 section 6.1).

    A pipe is escaped: in tables it ends a cell.
    """
    if not text:
        return "(empty)"
    inside = visible(text[:most])[:most].replace("|", r"\x7c")
    ticks = "`" * (max(map(len, _TICKS.findall(inside)), default=0) + 1)
    space = " " if inside[0] in "` " or inside[-1] in "` " else ""
    rest = f"… ({len(text):,} characters)" if len(text) > most else ""
    return f"{ticks}{space}{inside}{space}{ticks}{rest}"


def prose(text: str, most: int = LONGEST_TEXT) -> str:
    """Write a sentence with foreign text: words and figures as they are, everything else as code."""
    words = visible(text[:most])[:most].split()
    escaped = [_escape_word(word, first=place == 0) for place, word in enumerate(words)]
    return " ".join(escaped) + (f" … ({len(text):,} characters)" if len(text) > most else "")


def sentence(text: str, most: int = LONGEST_TEXT) -> str:
    """Write `prose` with a capital first letter."""
    escaped = prose(text, most)
    return escaped[:1].upper() + escaped[1:]


def _escape_word(word: str, *, first: bool) -> str:
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
    """Write lines as a code block with a fence that none of them can close (CommonMark 0.31.2 section 4.5)."""
    lines = [visible(line) for line in text.splitlines()]
    ticks = "`" * max(3, 1 + max((len(run) for line in lines for run in _TICKS.findall(line)), default=0))
    return "\n".join([ticks + language, *lines, ticks])


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Write a table of cells that are Markdown already; `right` lists the right-aligned columns."""
    rule = ["---:" if column in right else "---" for column in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, rule, *rows))


def items(lines: Iterable[str]) -> str:
    """Write a list of lines that are Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def folded(summary: str, text: str) -> str:
    """Write a text that the reader can unfold; `summary` is plain text without foreign words."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


class Block(Struct, frozen=True):
    """A part of a page."""

    text: str
    """Markdown; empty for a part without content."""
    name: str = ""
    """The note's name for the block when it is left out."""
    rank: int = 0
    """The block with the largest rank is left out first; rank 0 is never left out."""


def fitting(blocks: Sequence[Block], most: int, where: str) -> str:
    """Join blocks to a page of fewer than `most` bytes: the least important ones are left out, and a note says so.

    `where` says where the reader finds them. If the blocks of rank 0 alone are too long, the page is cut.
    """
    kept, left = [block for block in blocks if block.text], list[Block]()
    while len(_join_blocks(kept, left, where).encode()) >= most and any(block.rank for block in kept):
        least = max(enumerate(kept), key=lambda item: (item[1].rank, item[0]))[0]
        left.append(kept.pop(least))
    page = _join_blocks(kept, left, where)
    return page if len(page.encode()) < most else _join_blocks([_cut_blocks(kept, most)], left, where)


def _join_blocks(kept: Sequence[Block], left: Sequence[Block], where: str) -> str:
    names = list(dict.fromkeys(block.name for block in reversed(left)))
    note = [f"Left out for length: {', '.join(names)}; {where}."] if names else []
    return "\n\n".join([*(block.text for block in kept), *note]) + "\n"


def _cut_blocks(kept: Sequence[Block], most: int) -> Block:
    """Cut the page after whole lines. No report needs this, because every block is limited."""
    lines, room = [], most - 2_000
    for line in "\n\n".join(block.text for block in kept).splitlines():
        room -= len(line.encode()) + 1
        if room < 0:
            break
        lines.append(line)
    return Block("\n".join(lines))
