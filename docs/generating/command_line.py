"""The commands with their options, as a page and as a man page, out of the command line's own description.

Only attributes that typer and click have had for years are read, so that the pages do not change with their versions.
click-man, the usual generator of man pages, wants click's own classes, which typer no longer uses; `typer utils docs`
writes Markdown alone, and other Markdown with other versions.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer
from typer._completion_shared import get_completion_script

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.cli import app

KINDS = {"int": "N", "float": "X", "path": "FILE", "file": "FILE", "text": "TEXT", "str": "TEXT"}
"""What stands for the value of an option that names none, by what click's or typer's name of its type begins with."""
WRITTEN = "2026-11-21"
"""The date on the man page: of the last change that matters to its readers, at the latest of the last release."""


@dataclass(frozen=True)
class Parameter:
    """An argument or an option: `names` as typed, `value` what follows, empty for a switch."""

    names: tuple[str, ...]
    value: str
    about: str


@dataclass(frozen=True)
class Command:
    """A command: `usage` behind its name, `about` in paragraphs."""

    name: str
    usage: str
    about: tuple[str, ...]
    parameters: tuple[Parameter, ...]


def commands() -> tuple[Command, ...]:
    """All commands in the order of `grpcdiag --help`."""
    group: Any = typer.main.get_command(app)
    return tuple(_commands(group, ""))


def _commands(group: Any, before: str) -> Iterator[Command]:
    """Those of a group, and of groups in it by all of their names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")
        elif not command.hidden:
            yield _command(f"{before}{name}", command)


def _command(name: str, command: Any) -> Command:
    shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    usage = " ".join(["[OPTIONS]", *(_metavar(argument) for argument in arguments)])
    about = tuple(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    return Command(name, usage, about, tuple(_parameter(p) for p in shown))


def _parameter(parameter: Any) -> Parameter:
    about = " ".join((getattr(parameter, "help", None) or "").split())
    if parameter.param_type_name == "argument":
        return Parameter((_metavar(parameter),), "", about)
    notes = [*_bounds(parameter.type), *_default(parameter)]
    if getattr(parameter, "multiple", False) and "repeatable" not in about:
        notes.append("repeatable")
    about += f" ({'; '.join(notes)})" if notes else ""
    names = tuple(sorted(parameter.opts, key=len)) + tuple(parameter.secondary_opts)
    return Parameter(names, "" if _is_switch(parameter) else _metavar(parameter), about)


def _metavar(parameter: Any) -> str:
    """What stands for the value: its own word, the choices, or its kind."""
    if parameter.metavar:
        return str(parameter.metavar)
    if choices := getattr(parameter.type, "choices", None):
        return "|".join(str(getattr(choice, "value", choice)) for choice in choices)
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    return next((word for kind, word in KINDS.items() if parameter.type.name.startswith(kind)), "VALUE")


def _is_switch(parameter: Any) -> bool:
    return bool(getattr(parameter, "is_flag", False))


def _bounds(kind: Any) -> Iterator[str]:
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    if low is not None and high is not None:
        yield f"{low} to {high}"
    elif low is not None:
        yield f"{low} or more"


def _default(parameter: Any) -> Iterator[str]:
    value = getattr(parameter.default, "value", parameter.default)
    if isinstance(value, (str, int, float)) and not isinstance(value, bool) and parameter.show_default is not False:
        yield f"default {value}"


# The page


def page() -> str:
    """Markdown with every command and option."""
    lines = [
        "# Commands",
        "",
        "What `grpcdiag COMMAND --help` says, in one place; `man grpcdiag` has the same. Each takes `--help`.",
        "",
        *textwrap.wrap(_markdown(str(app.info.epilog)), 118, break_long_words=False, break_on_hyphens=False),
    ]
    for command in commands():
        lines += ["", f"## {command.name}", "", "```text", f"grpcdiag {command.name} {command.usage}", "```"]
        for paragraph in command.about:
            lines += ["", _markdown(paragraph)]
        if command.parameters:
            lines += ["", "| argument, option | does |", "| --- | --- |"]
            lines += [f"| {_names(p)} | {_markdown(p.about)} |" for p in command.parameters]
    return "\n".join([*lines, "", *_COMPLETION]) + "\n"


_COMPLETION = (
    "## Completion",
    "",
    "The package has completions for bash, zsh and fish in `share` below its prefix. Shells find them there after an",
    "installation into `/usr/local`. In a virtual environment, `grpcdiag --install-completion` sets up the shell it is",
    "called from (bash, zsh, fish, PowerShell); `grpcdiag --show-completion` prints what it would add. Commands,",
    "options, finding ids, formats, lab cases and names of files are completed.",
)


def _names(parameter: Parameter) -> str:
    value = f" {parameter.value}" if parameter.value else ""
    names = [f"`{name}{value if name == parameter.names[-1] else ''}`" for name in parameter.names]
    return ", ".join(names).replace("|", r"\|")


def _markdown(text: str) -> str:
    """Text of a help message, which is no Markdown."""
    return re.sub(r"([\\|*_<\[\]`])", r"\\\1", text)


# What shells load

INSTALLED = {
    "bash": "bash-completion/completions/grpcdiag",
    "zsh": "zsh/site-functions/_grpcdiag",
    "fish": "fish/vendor_completions.d/grpcdiag.fish",
}
"""Where shells look for completions, below /usr/share and /usr/local/share."""


def completions() -> dict[str, str]:
    """The completion of each shell by its path."""
    return {path: _completion(shell) for shell, path in INSTALLED.items()}


def _completion(shell: str) -> str:
    script = get_completion_script(prog_name="grpcdiag", complete_var="_GRPCDIAG_COMPLETE", shell=shell)
    # a function that zsh loads must complete at once, not from the next time on
    return script.replace("compdef _grpcdiag_completion grpcdiag", '_grpcdiag_completion "$@"') + "\n"


# The man page


def manual() -> str:
    """grpcdiag(1), in the man macros."""
    lines = [
        r".\" Written by docs/generate.py from src/grpcdiag/cli/: change that, then run `make docs`.",
        f'.TH GRPCDIAG 1 {WRITTEN} "grpcdiag {_core.__version__}" "User Commands"',
        ".SH NAME",
        rf"grpcdiag \- {_roff(_sentence(str(app.info.help)))}",
        ".SH SYNOPSIS",
        ".B grpcdiag",
        r".I COMMAND",
        r"[\fIOPTIONS\fR] ...",
        ".SH DESCRIPTION",
        _roff(_DESCRIPTION),
        ".SH COMMANDS",
    ]
    for command in commands():
        lines += [f".SS {_roff(command.name)}", f".B grpcdiag {_roff(command.name)}", _roff(command.usage)]
        for paragraph in command.about:
            lines += [".PP", _roff(paragraph)]
        for parameter in command.parameters:
            lines += [".TP", _term(parameter), _roff(parameter.about)]
    lines += [".SH FINDINGS", "What", ".B grpcdiag explain", "explains:"]
    lines += [
        line for d in sorted(DETECTORS, key=lambda d: d.id) for line in (".TP", rf"\fB{_roff(d.id)}\fR", _first(d))
    ]
    for heading, entries in (("EXIT STATUS", _exits()), ("ENVIRONMENT", _ENVIRONMENT)):
        lines += [f".SH {heading}"]
        lines += [line for name, about in entries for line in (".TP", rf"\fB{_roff(name)}\fR", _roff(about))]
    lines += [".SH EXAMPLES"]
    for about, example in _EXAMPLES:
        lines += [".TP", _roff(about), ".nf", _roff(example), ".fi"]
    lines += [".SH SEE ALSO", r".BR tcpdump (8),", r".BR tshark (1),", r".BR pcap\-filter (7)"]
    return "\n".join(lines) + "\n"


_DESCRIPTION = (
    "grpcdiag reads packet captures of gRPC traffic. It decodes TCP, HTTP/2 and gRPC, divides the duration of every "
    "RPC among causes, and reports findings with the packets that prove them and the settings that change them. What "
    "the packets do not tell is called unexplained."
)
_ENVIRONMENT = (
    ("NO_COLOR", "When set, nothing is coloured."),
    ("SSLKEYLOGFILE", "Where many programs write their TLS secrets; grpcdiag reads such a file with --keylog only."),
)
_EXAMPLES = (
    (
        "Record a benchmark and say what slowed it:",
        "sudo grpcdiag capture -t 10.0.0.2:50051 --then analyze -- ./benchmark",
    ),
    ("Look at the packets that a finding names:", "grpcdiag timeline run.pcap --connection 0 --from 2.8 --to 3300ms"),
    ("What a change of settings brought:", "grpcdiag compare before.pcap after.pcap"),
)


def _first(detector: Any) -> str:
    return _roff(" ".join(detector.page.strip().split("\n\n")[0].split()))


def _exits() -> list[tuple[str, str]]:
    """Exit codes out of the sentence at the end of the help."""
    listed = str(app.info.epilog).removeprefix("Exit codes: ").removesuffix(".")
    codes = [re.fullmatch(r"(\d+) (.+)", part) for part in listed.split(", ")]
    return [(code[1], f"{code[2]}.") for code in codes if code]


def _sentence(text: str) -> str:
    return text[0].lower() + text[1:].removesuffix(".")


def _term(parameter: Parameter) -> str:
    names = ", ".join(rf"\fB{_roff(name)}\fR" for name in parameter.names)
    return names + (rf" \fI{_roff(parameter.value)}\fR" if parameter.value else "")


def _roff(text: str) -> str:
    """Text in short lines, with what roff would take for a request made harmless."""
    lines = textwrap.wrap(text, 70, break_long_words=False, break_on_hyphens=False)
    escaped = (line.replace("\\", r"\e").replace("-", r"\-") for line in lines)
    return "\n".join(rf"\&{line}" if line.startswith((".", "'")) else line for line in escaped)
