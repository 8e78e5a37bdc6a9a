"""What is known of each implementation, as a page, and the texts that the core keeps."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Mapping

from grpcdiag.analyzer.software.implementation import Implementation, Setting, Text
from grpcdiag.analyzer.software.known import read_all

_HEAD = """
    # Implementations

    What reports know of gRPC implementations, proxies, servers and devices. Each line names its source, and the version
    that was read.

    Each has one file in `analyzer/software/known`. A new file is used without being named anywhere: its settings are
    proposed where its `tokens` are seen, and its texts are kept and explained after `make docs` and `make dev`.

    A setting is `[intent, setting, note, default]`. A finding names the intent (`analyzer/software/intents.py`), and
    the software that was recognised gives the setting. `{}` in a note stands for what the finding says.
"""


def write_page() -> str:
    """One section for each implementation: its settings, timers, texts and faults, each with its source."""
    head = inspect.cleandoc(_HEAD).splitlines()
    return "\n".join([*head, *(line for one in read_all().values() for line in _write_section(one))]) + "\n"


def _write_section(one: Implementation) -> Iterator[str]:
    yield from ("", f"## {one.name}", "")
    if one.tokens:
        yield f"Named by {', '.join(f'`{token}`' for token in one.tokens)} in `user-agent`, `server` or `via`."
    if one.frames:
        yield f"Recognised by {one.frames}."
    settings = ((*_describe(each), at) for at, many in one.settings.items() for each in many)
    yield from _table(("to", "setting", "default", "note", "source"), settings)
    timers = ((f"`{t.setting}`", t.measures, _time(t.default_s), at) for at, many in one.timers.items() for t in many)
    yield from _table(("timer", "measures", "default", "source"), timers)
    limits = ((_time(limit), at) for at, many in one.idle_limits.items() for limit in many)
    yield from _table(("keeps an idle connection for", "source"), limits)
    for name, texts in (("`grpc-message`", one.texts), ("GOAWAY", one.goaways)):
        rows = ((_write_texts(t.texts), t.says, t.setting, at) for at, many in texts.items() for t in many)
        yield from _table((f"text of {name}", "means", "setting", "source"), rows)
    faults = ((fault.versions, fault.says, at) for at, many in one.faults.items() for fault in many)
    yield from _table(("versions", "fault", "source"), faults)


def _describe(setting: Setting) -> tuple[str, str, str, str]:
    intents = (setting.intents,) if isinstance(setting.intents, str) else setting.intents
    note = setting.note.replace("; {}", "").replace("{}; ", "").replace("{}, ", "")
    return ", ".join(intents), f"`` {setting.knob} ``", setting.default, note


def _time(seconds: int | None) -> str:
    return "none" if seconds is None else f"{seconds} s"


def _write_texts(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    if lines:
        yield from ("", f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines)


def write_texts() -> str:
    """The core's lists of texts, by software."""
    errors, goaways = (
        _list_texts(texts) for texts in zip(*((one.texts, one.goaways) for one in read_all().values()), strict=True)
    )
    return "\n".join(
        [
            "//! Written by docs/generate.py from analyzer/software/known: change that, then run `make docs`.",
            "",
            "/// Values of `grpc-message`: `#` stands for hexadecimal digits, and `*` at the end for what is left out.",
            *_write_list("ERRORS", errors),
            "",
            "/// Debug data of GOAWAY frames.",
            *_write_list("GOAWAYS", goaways),
            "",
        ]
    )


def _list_texts(by_source: Iterable[Mapping[str, Iterable[Text]]]) -> list[str]:
    return [each for found in by_source for texts in found.values() for text in texts for each in text.texts]


def _write_list(name: str, texts: Iterable[str]) -> Iterator[str]:
    yield f"pub const {name}: &[&str] = &["
    yield from (f"    {json.dumps(text, ensure_ascii=False)}," for text in texts)
    yield "];"
