"""What texts of `grpc-message` and GOAWAY mean that software writes itself: the core keeps these unasked."""

import functools
import re
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from ..model.finding import Remedy
from .implementation import Goaway, Text
from .known import read_all


class Meaning(Struct, frozen=True):
    """What a text says, and whose it is."""

    software: str
    text: Text


@functools.cache
def _list_meanings() -> tuple[tuple[str, str, Meaning], ...]:
    """List how texts begin, the texts, and what they mean."""
    return tuple(
        (re.split("[#*]", pattern)[0], pattern, Meaning(one.name, text))
        for one in read_all().values()
        for texts in (*one.texts.values(), *one.goaways.values())
        for text in texts
        for pattern in text.texts
    )


def find_most_frequent(texts: Mapping[str, int]) -> tuple[Meaning, int] | None:
    """Find the meaning that most texts have, and how many have it; None when no text is known."""
    counts = Counter[Meaning]()
    for text, number in texts.items():
        found = {meaning for begin, whole, meaning in _list_meanings() if text.startswith(begin) and _fits(whole, text)}
        counts.update({meaning: number for meaning in found if meaning.text.says})
    return counts.most_common(1)[0] if counts else None


def _fits(pattern: str, text: str) -> bool:
    words = re.escape(pattern).replace(r"\#", "[0-9a-fA-F]+").replace(r"\*", ".*")
    return re.fullmatch(words, text, re.DOTALL) is not None


def advise(known: tuple[Meaning, int] | None, failed: int) -> str:
    """Say what the text of most failures means, and the setting that it is about; nothing without such a text."""
    if known is None or 2 * known[1] < failed:
        return ""
    whose = "Their text" if known[1] == failed else f"The text of {known[1]:,}"
    return explain(known[0], whose)


def explain(meaning: Meaning, whose: str) -> str:
    """Say what a text means, and the setting that it is about."""
    software = meaning.software.partition(" (")[0]
    return f"{whose} is {software}'s: {meaning.text.says}. Look at {meaning.text.setting}."


def find_meaning(text: str) -> Meaning | None:
    """Find what one text means; None when it is not known."""
    found = find_most_frequent({text: 1})
    return found[0] if found else None


def make_remedy(meaning: Meaning) -> Remedy:
    """Name the setting that the texts are about."""
    return Remedy(meaning.software, meaning.text.setting, meaning.text.note)


@functools.cache
def list_goaways(*causes: str) -> tuple[str, ...]:
    """List what servers write into GOAWAYs of connections that they end for some causes."""
    return tuple(text for *_, text, m in _list_meanings() if isinstance(m.text, Goaway) and m.text.cause in causes)
