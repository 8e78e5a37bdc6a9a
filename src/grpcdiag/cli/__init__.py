"""The command line: one file per command. The only place that opens files and prints."""

from __future__ import annotations

import typer

from . import (
    analyze,
    attach,
    capture,
    compare,
    connections,
    doctor,
    explain,
    export,
    fleet,
    frames,
    lab,
    messages,
    packets,
    rpcs,
    scrub,
    timeline,
    verify,
    waits,
)

app = typer.Typer(
    name="grpcdiag",
    help="Say where the time of every RPC in a packet capture went, why, and which packets prove it.",
    epilog="Exit codes: 0 done, 1 --fail-on met or a difference that verify cannot explain or scrub made, "
    "2 wrong usage, "
    "3 input unreadable or not a capture, "
    "4 no gRPC traffic found, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_COMMANDS = (
    analyze,
    compare,
    connections,
    rpcs,
    messages,
    frames,
    packets,
    waits,
    timeline,
    export,
    explain,
    capture,
    verify,
    scrub,
    attach,
    lab,
    doctor,
)
for command in _COMMANDS:
    app.command(name=command.NAME, context_settings=getattr(command, "CONTEXT", None))(command.command)

app.add_typer(fleet.app, name=fleet.NAME)


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from ..analyzer import _core

        typer.echo(f"grpcdiag {_core.__version__}")
        raise typer.Exit
