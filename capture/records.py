"""Find the record of its calls that a load generator writes: ghz's JSON report, k6's JSON lines."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from stat import S_ISREG

_Version = tuple[int, ...]


@dataclass(frozen=True)
class Expected:
    """A file that a command will write."""

    tool: str
    """`ghz` or `k6`, which is also the format of the record."""
    path: Path
    before: _Version | None
    """The file as it was before the command ran; None if there was none."""

    def is_written(self) -> bool:
        """Say whether there is a regular file that differs from the one before."""
        now = _find_version(self.path)
        return now is not None and now != self.before


def expect_records(arguments: Sequence[str]) -> list[Expected]:
    """List the records that a command will write, by its arguments; call it before the command runs."""
    found = dict.fromkeys(record for words in _list_commands(arguments) for record in _list_records(words))
    return [Expected(tool, Path(name), _find_version(Path(name))) for tool, name in found]


def _find_version(path: Path) -> _Version | None:
    try:
        found = path.stat()
    except (OSError, ValueError):  # a name may hold a null
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) if S_ISREG(found.st_mode) else None


def _list_commands(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Yield the arguments themselves, and the commands in the text of `sh -c TEXT`."""
    yield list(arguments)
    for option, text in pairwise(arguments):
        if option.startswith("-") and option.endswith("c"):
            words: list[str] = []
            for word in _split(text):
                if set(word) <= set(";|&()<>\n"):
                    yield words
                    words = []
                else:
                    words.append(word)
            yield words


def _split(text: str) -> list[str]:
    words = shlex.shlex(text, posix=True, punctuation_chars=";|&()<>\n")
    words.whitespace, words.whitespace_split, words.commenters = " \t\r", True, ""
    try:
        return list(words)
    except ValueError:  # an open quote
        return []


def _list_records(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the record of each tool that the words of a command name, also behind a wrapper such as `taskset`."""
    for place, word in enumerate(words):
        options = words[place + 1 :]
        match PurePath(word).name:
            case "ghz":
                written_as, name = (_find_values(options, *names) for names in (("-O", "--format"), ("-o", "--output")))
                if written_as[:1] in (["json"], ["pretty"]) and name:
                    yield "ghz", name[0]
            case "k6":
                outputs = (value.partition("=") for value in _find_values(options, "-o", "--out"))
                yield from (("k6", name) for kind, _, name in outputs if kind == "json" and name)


def _find_values(words: Sequence[str], short: str, long: str) -> list[str]:
    """List the values of an option in all its spellings: `-o V`, `-oV`, `--output V`, `--output=V`."""
    found = []
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word in (short, long):
            found.append(after)
        elif word.startswith(f"{long}="):
            found.append(word.removeprefix(f"{long}="))
        elif word.startswith(short) and not word.startswith("--"):
            found.append(word.removeprefix(short).removeprefix("="))
    return [value for value in found if value]
