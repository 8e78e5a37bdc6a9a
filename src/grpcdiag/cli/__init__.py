"""The command line, one file per command: the only place that opens files and prints."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typer

COMMANDS = {
    "analyze": "Report what costs time: causes, findings, packets, settings.",
    "compare": "Compare the same work in two or more captures.",
    "connections": "Write one row per TCP connection.",
    "rpcs": "Write one row per RPC, with its time by cause.",
    "messages": "Write one row per gRPC message.",
    "frames": "Write one row per HTTP/2 frame.",
    "packets": "Write one row per TCP packet.",
    "waits": "Write one row per blocked interval, with its cause.",
    "timeline": "Draw a timeline of one connection or stream.",
    "export": "Write all tables as Parquet or CSV, or RPCs as spans.",
    "explain": "Explain a finding, or list all.",
    "capture": "Record the packets of a command.",
    "watch": "Show calls live, and record the moments of trouble.",
    "verify": "Compare the decoding with Wireshark's.",
    "scrub": "Write a copy without secrets that can be published.",
    "annotate": "Write findings as packet comments, for Wireshark.",
    "attach": "Write a bug report with a scrubbed capture.",
    "lab": "Reproduce a problem with real gRPC programs.",
    "doctor": "Say what this machine lacks, and how to get it.",
    "fleet": "Analyze captures of many hosts.",
}
"""The commands in the order of `grpcdiag --help`, and what it says of each; they are also the names of their files."""


def application(only: str | None = None) -> typer.Typer:
    """Build the command line, or only one command of it, which starts faster."""
    import typer

    from .support.gather import gather_options

    app = typer.Typer(
        name="grpcdiag",
        help="Find out from a packet capture why gRPC calls are slow, and which packets prove it.",
        epilog="Exit codes: 0: done. 1: --fail-on is met, verify cannot explain a difference, or scrub would change "
        "the analysis. 2: wrong usage, or output that cannot be written. 3: input that cannot be read, or is no "
        "capture. 4: no gRPC traffic. 130: interrupted.",
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

    for name, summary in COMMANDS.items():
        if only in (None, name):
            command = import_module(f".{name}", __name__)
            if hasattr(command, "app"):
                app.add_typer(command.app, name=name, short_help=summary)
            else:
                settings = getattr(command, "CONTEXT", None)
                app.command(name=name, short_help=summary, context_settings=settings)(gather_options(command.command))
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
