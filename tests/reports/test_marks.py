"""Foreign text in Markdown: a real parser sees text and code, nothing else, and trackers find nothing to link."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markup import HOSTILE, LINKED, kinds, parsed, plain

from grpcdiag.reports.shared.markdown_escape import Block, code, fence, fitting, prose, shortened, table, visible

INLINE = {"paragraph_open", "paragraph_close", "inline", "text", "code_inline"}
TEXTS = st.one_of(
    st.sampled_from(HOSTILE), st.text(max_size=80), st.text(alphabet="`|\\<>@#*_-~[]()! \n1.:$&a", max_size=60)
)


def seen(page: str) -> str:
    return "".join(t.content for t in parsed(page) if t.type in ("text", "code_inline"))


@pytest.mark.parametrize("text", HOSTILE)
@given(around=st.sampled_from(("", "begin ", "(", "a `b` ")))
def test_hostile_prose(text: str, around: str) -> None:
    harmless(prose(around + text))


@given(TEXTS)
def test_prose_is_text_and_code(text: str) -> None:
    harmless(prose(text))


def harmless(page: str) -> None:
    assert kinds(page) <= INLINE, page
    for text in plain(page):
        assert not LINKED.search(text.replace("RPC/s", "").translate({ord("_"): None})), text
    assert all(c.isprintable() and unicodedata.bidirectional(c) not in ("R", "AL", "AN") for c in page)


@given(TEXTS)
def test_code_is_one_span_that_shows_the_text(text: str) -> None:
    page = code(text)
    tokens = [t for t in parsed(f"x {page} y") if t.type not in ("paragraph_open", "paragraph_close", "inline")]
    assert [t.type for t in tokens] == (["text", "code_inline", "text"] if text else ["text"])
    if text:
        assert tokens[1].content == visible(text).replace("|", r"\x7c")


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
def test_tables_stay_tables(rows: list[tuple[str, str]]) -> None:
    page = table(("a", "b"), [(code(a), prose(b)) for a, b in rows])
    tokens = parsed(page)
    assert sum(t.type == "tr_open" for t in tokens) == len(rows) + 1
    assert sum(t.type == "td_open" for t in tokens) == 2 * len(rows)
    assert sum(t.type == "table_open" for t in tokens) == 1
    assert {t.type.split("_")[0] for t in tokens} <= {
        "table", "thead", "tbody", "tr", "th", "td", "inline", "text", "code"
    }  # fmt: skip


@given(st.lists(TEXTS, max_size=5))
def test_nothing_ends_a_fence(texts: list[str]) -> None:
    tokens = parsed(fence("\n".join(texts)))
    assert [t.type for t in tokens] == ["fence"]


def test_what_words_look_like() -> None:
    assert prose("client 10.0.0.1 had sent nothing for 1,000 ms (40.0%): set net.ipv4.x=0.") == (
        "client `10.0.0.1` had sent nothing for 1,000 ms (40.0%): set `net.ipv4.x=0`."
    )
    assert prose("client's NOT_FOUND over HTTP/2 -> 27x") == "client's NOT_FOUND over HTTP/2 → 27x"
    assert prose("@octocat #12 defaced 1234567") == "`@octocat` `#12` `defaced` `1234567`"
    assert prose("1. one") == "`1.` one"
    assert code("a`b") == "``a`b``"
    assert code("`") == "`` ` ``"


def test_long_text_is_cut() -> None:
    page = prose("x" * 1_000_000)
    assert len(page) < 3_500
    assert "(1,000,000 characters)" in page
    assert len(prose("word " * 200_000)) < 3_500
    assert len(code("`" * 1_000_000)) < 1_000
    assert shortened("abc", 2) == "ab… (3 characters)"


def test_the_least_important_goes_first_and_is_named() -> None:
    blocks = [Block("head"), Block("a" * 50, "as", 2), Block("b" * 50, "bs", 3), Block("", "empty", 9), Block("end")]
    assert fitting(blocks, 10_000, "look there").count("a") > 49
    page = fitting(blocks, 114, "look there")
    assert "b" * 50 not in page
    assert "a" * 50 in page
    assert page.endswith("Left out for length: bs; look there.\n")
    assert len(fitting([Block("µ" * 40_000)], 60_000, "").encode()) < 60_000
