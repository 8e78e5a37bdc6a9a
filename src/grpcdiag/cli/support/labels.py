"""Names for methods that the capture does not name, as `--label` gives them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from .messages import fail

_LABEL = re.compile(r"\s*method #([1-9]\d{0,8})\s*=\s*(/\S+)\s*")


def read_labels(given: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield numbers of methods and their names; `given` has labels with names, and files of them."""
    for text in given:
        lines = [text] if text.lstrip().startswith("method #") else _read_lines(text)
        for line in lines:
            found = _LABEL.fullmatch(line)
            if found is None:
                fail(f"--label {text}: {line!r} is no LABEL=METHOD, such as 'method #2=/shop.v1.Cart/Get'", 2)
            yield int(found[1]), found[2]


def _read_lines(file: str) -> list[str]:
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"--label {file}: neither LABEL=METHOD nor a file that can be read ({error})", 2)
    return [line for line in lines if line.strip() and not line.startswith("#")]
