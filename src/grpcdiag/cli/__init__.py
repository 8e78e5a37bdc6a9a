"""The command line, one file per command: the only place that opens files and prints."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typer

COMMANDS = (
    "analyze",
    "compare",
    "connections",
    "rpcs",
    "messages",
    "frames",
    "packets",
    "waits",
    "timeline",
    "export",
    "explain",
    "capture",
    "watch",
    "verify",
    "scrub",
    "annotate",
    "attach",
    "lab",
    "doctor",
    "fleet",
)
"""The commands, which are also the names of their files, in the order of `grpcdiag --help`."""


def application(only: str | None = None) -> typer.Typer:
    """Build the command line, or only one command of it, which starts faster."""
    import typer

    app = typer.Typer(
        name="grpcdiag",
        help="Find out from a packet capture why gRPC calls are slow, and which packets prove it.",
        epilog="Exit codes: 0 done, 1 --fail-on met, verify cannot explain a difference, or scrub would change the "
        "analysis, 2 wrong usage or output that cannot be written, "
        "3 input unreadable or not a capture, "
        "4 no gRPC traffic found, 130 interrupted.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def _options(
        version: bool = typer.Option(False, "--version", help="Print version, commit and build, and exit."),
        verbose: bool = typer.Option(False, "--verbose", "-v", help="Say which configuration file is read."),
    ) -> None:
        if version:
            from ..version import describe_version

            typer.echo(describe_version())
            raise typer.Exit
        if verbose:
            from .support.common import say
            from .support.config import read_config

            say(f"configuration: {read_config().describe()}")

    for name in COMMANDS:
        if only in (None, name):
            command = import_module(f".{name}", __name__)
            if hasattr(command, "app"):
                app.add_typer(command.app, name=name)
            else:
                app.command(name=name, context_settings=getattr(command, "CONTEXT", None))(command.command)
    return app


def of_arguments(arguments: list[str]) -> typer.Typer:
    """Build the part of the command line that these arguments need."""
    first = arguments[0] if arguments else ""
    return application(first if first in COMMANDS else None)


def __getattr__(name: str) -> typer.Typer:
    """Build `app`, the whole command line, when it is first used."""
    if name == "app":
        whole = globals()["app"] = application()
        return whole
    raise AttributeError(name)
