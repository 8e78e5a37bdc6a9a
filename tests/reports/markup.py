"""What a CommonMark parser and a tracker make of a page: nodes, and what they would turn into links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

HOSTILE = (
    "| a | b |\n|---|---|",
    "`x` ``y`` ```",
    "```\n# out",
    "~~~",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</details><h1>out</h1>",
    "<!-- a --> -->",
    "@octocat please look",
    "grpc/grpc-go#1 #123 GH-7 golang/go@aded19ed6f0381840bf86cc84c26695b4dbae976",
    "aded19ed6f0381840bf86cc84c26695b4dbae976 defaced 1234567",
    "[click](javascript:alert(1)) ![i](http://a.example/b.png)",
    "[ref]\n\n[ref]: http://a.example",
    "http://a.example www.example.com user@example.com <http://a.example>",
    "**bold** _em_ ~~gone~~ ==mark== $x$ $`y`$ :boom: [^1]",
    "# head\n## head\n---\n===\n* * *",
    "1. one\n- two\n+ three\n> four\n    five",
    "&lt;b&gt; &amp; &#64;octocat &copy;",
    "\\` \\| \\@octocat \\<b>",
    "\x1b[31mred\x1b]0;title\x07\x9b2J\r\n\x08",
    "\u202egpj.exe\u202c \u2066x\u2069 \u200b\u200d\ufeff",
    "\u05d0\u05d1\u05d2 \u0627\u0628 a\u0301\u0302 \u3164\u2800",
    "\ud800 lone",
    "a\u2028b\u2029c\x85d\xa0e\x0bf\x0cg",
    "||||||| \\|| |",
    "TO FILL: _____ <!-- TO FILL: x -->",
)
"""Text of strangers."""

LINKED = re.compile(
    r"@\w|#\d|\bGH-\d|\b[0-9a-f]{7,40}\b|https?:|www\.|\w@\w|:\w+:|\$|\[\^|[<>&|*_~\\\[\]`]", re.IGNORECASE
)
"""What trackers make links, names, pictures or formulas of outside of code, and marks."""


@lru_cache(maxsize=8)
def parsed(page: str) -> list[Token]:
    """Its nodes, inline ones too."""
    found: list[Token] = []
    for token in MarkdownIt("gfm-like").parse(page):
        found += [token, *(token.children or [])]
    return found


def plain(page: str) -> Iterator[str]:
    """Text that is neither code nor comment."""
    yield from (token.content for token in parsed(page) if token.type == "text")


def kinds(page: str) -> set[str]:
    """Types of its nodes."""
    return {token.type for token in parsed(page)}
