"""`grpcdiag fleet`: analyze captures of many hosts."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .support.common import NO_GRPC, UNREADABLE, drawn, fail, require_parquet, say, write
from .support.options import Color, Output, Ports, Quiet
from .support.terminal import When, coloured, columns

if TYPE_CHECKING:
    from ..fleet.engines.task import Outcome
    from ..fleet.run import Plan, Result, Told

app = typer.Typer(
    help="Analyze captures of many hosts into one dataset, and report on it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MOST_FILES_NAMED = 5
"""Most skipped files named for each host; the dataset's markers name all."""
_EVERY_S = 10.0
"""Seconds between two lines of progress when standard error is not a terminal."""

Dataset = Annotated[str, typer.Argument(metavar="DATASET", help="Folder or URL of a dataset written by fleet analyze.")]


@app.command("analyze", short_help="Analyze all new recordings into a dataset.")
def analyze(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="Folders, patterns, files or URLs of object stores (s3://, gs://, file://...). "
            "Files that one tcpdump rotated are read as one recording.",
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="DATASET", help="Folder or URL of the dataset; created if missing.")
    ],
    engine: Annotated[
        str, typer.Option("--engine", metavar="ENGINE", help="local, or dask://HOST:PORT of a running scheduler.")
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=1, help="Processes of the local engine. Default: one per core."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="REGEX",
            help="Pattern that finds the host in paths below SOURCE: group (?P<host>...), optional (?P<interface>...).",
        ),
    ] = None,
    port: Ports = None,
    keylog: Annotated[
        str | None,
        typer.Option(
            "--keylog",
            metavar="FILE",
            help="TLS secrets in the format of SSLKEYLOGFILE; a file or URL that the workers can read.",
        ),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Read files again that could not be read, even if they did not change.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="Analyze share I of N of the recordings (the first is 0/N) and write no summary: run fleet summarise "
            "after all shares.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Analyze every recording of the sources into a Parquet dataset; recordings already in it are skipped."""
    gc.enable()  # a run may take hours, and the command line disables garbage collection
    with _handle_errors():
        from ..fleet import run
        from ..fleet.engines import engine as engine_of
        from ..fleet.recordings.credentials import without_credentials

        require_parquet()
        planned = run.plan(sources, output, port or [], layout, keylog, retry=retry, shard=_parse_shard(shard))
        if not planned.recordings and not planned.is_shard:
            fail("the sources contain no captures", UNREADABLE)
        if not quiet:
            say(_describe_plan(planned))
            _report_cut_key_log(planned)
        with engine_of(engine, workers) as chosen, _show_progress(planned, quiet) as report_outcome:
            if planned.tasks and not chosen.workers:
                say(f"{without_credentials(engine)} has no workers now; work begins when workers connect")
            result = run.execute(planned, chosen, report_outcome)
    _report_result(result, quiet)


def _parse_shard(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    share, _, shares = text.partition("/")
    if not (share.isdecimal() and shares.isdecimal() and int(share) < int(shares)):
        fail(f"--shard {text}: I/N with I from 0 to N - 1 is needed, such as 0/8", 2)
    return int(share), int(shares)


@app.command("summarise", short_help="Write the summary after fleet analyze --shard.")
def summarise(
    dataset: Dataset,
    sweep: Annotated[
        bool,
        typer.Option("--sweep", help="Remove files that killed runs left; no run into the dataset may be going on."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write the summary that reports read, after fleet analyze --shard."""
    with _handle_errors():
        from ..analyzer.model.text import count
        from ..fleet import run

        joined = run.summarise(dataset, None if sweep else ())
    if joined and not quiet:
        say(f"{count(joined, 'RPC')} recorded at both ends")


Finished = Annotated[
    bool,
    typer.Option(
        "--finished",
        help="Include the last part of each recording: only if no recording continues, and no run is going on.",
    ),
]


@app.command("compact", short_help="Merge the small files of a dataset.")
def compact(dataset: Dataset, finished: Finished = False, quiet: Quiet = False) -> None:
    """Merge the small files of hours that have ended into one file per hour and table."""
    with _handle_errors():
        from ..analyzer.model.text import count
        from ..fleet import run

        done = run.compact(dataset, finished=finished)
    if not quiet:
        say(f"{count(done.recordings, 'recording')} compacted: {count(done.files_before, 'file')} into {done.files:,}")


@app.command("prune", short_help="Remove old recordings from a dataset.")
def prune(
    dataset: Dataset,
    older: Annotated[
        str, typer.Option("--older", metavar="AGE", help="Remove what is older: hours, days or weeks, such as 30d.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    finished: Finished = False,
    quiet: Quiet = False,
) -> None:
    """Remove recordings whose last packets are older than --older. Captures stay, and are not analyzed again."""
    from time import time_ns

    before = time_ns() - _parse_age(older)
    with _handle_errors():
        from ..analyzer.model.text import count
        from ..fleet import run
        from ..fleet.answers.text import moment

        done = run.prune(dataset, before, finished=finished, dry_run=dry_run)
    if not quiet:
        what = "would be removed" if dry_run else "removed"
        say(f"{count(done.recordings, 'recording')} before {moment(before)} UTC {what}: {count(done.files, 'file')}")


_HOURS = {"h": 1, "d": 24, "w": 168}


def _parse_age(text: str) -> int:
    """Parse an age; return nanoseconds."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdecimal() and unit in _HOURS and len(number) < 7):
        fail(f"--older {text}: a number of hours, days or weeks is needed, such as 36h, 30d or 8w", 2)
    return int(number) * _HOURS[unit] * 3_600_000_000_000


@contextmanager
def _handle_errors() -> Iterator[None]:
    """Turn errors of the fleet into messages and exit codes."""
    try:
        from ..fleet.engines import EngineError
        from ..fleet.recordings.credentials import without_credentials
        from ..fleet.recordings.series import LayoutError
        from ..fleet.recordings.store import SchemeError, StoreError, WriteError
    except ImportError as error:
        fail(f"{error}: pip install 'grpcdiag[fleet]'", 2)
    try:
        yield
    except (EngineError, LayoutError, SchemeError, WriteError) as error:
        fail(str(error), 2)
    except StoreError as error:
        fail(str(error), UNREADABLE)
    except ImportError as error:
        fail(f"{error}: pip install 'grpcdiag[fleet]'", 2)
    except Exception as error:
        if "duckdb" not in type(error).__module__:
            raise
        reason = without_credentials(str(error))
    else:
        return
    fail(f"the dataset cannot be queried: {reason}", UNREADABLE)


def _describe_plan(planned: Plan) -> str:
    from ..analyzer.model.text import count, size

    hosts = len({recording.host for recording in planned.recordings})
    files = sum(len(recording.files) for recording in planned.recordings)
    text = (
        f"{count(len(planned.recordings), 'recording')} of {count(hosts, 'host')} in {count(files, 'file')}; "
        f"{len(planned.tasks):,} to analyze, {size(planned.size)}"
    )
    return f"{text}; {planned.complete:,} already in the dataset" if planned.complete else text


def _report_cut_key_log(planned: Plan) -> None:
    from ..analyzer.decode.runner import KEY_LOG_BYTES

    if planned.keylog and planned.keylog.size > KEY_LOG_BYTES:
        say(f"{planned.keylog.named}: only the first {KEY_LOG_BYTES >> 20} MiB of the key log are used")


@contextmanager
def _show_progress(planned: Plan, quiet: bool) -> Iterator[Told]:
    """Show a bar on a terminal and lines elsewhere; the time left is estimated from the bytes left."""
    if quiet or not planned.tasks:
        yield lambda outcome: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            MofNCompleteColumn(),
            TextColumn("recordings"),
            BarColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
        )
        bars = Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=600)
        with drawn(bars) as bar:
            task = bar.add_task("analysing", total=len(planned.tasks))

            def advance(outcome: Outcome) -> None:
                bar.advance(task)

            yield advance
    else:
        yield _Lines(planned)


class _Lines:
    """Reports progress in lines."""

    def __init__(self, planned: Plan) -> None:
        from time import monotonic

        self._clock = monotonic
        self._began = self._said = monotonic()
        self._recordings, self._bytes = 0, 0
        self._planned = planned

    def __call__(self, outcome: Outcome) -> None:
        self._recordings += 1
        self._bytes += outcome.size
        now, total = self._clock(), len(self._planned.tasks)
        if now - self._said < _EVERY_S or self._recordings == total:
            return
        self._said = now
        left = (now - self._began) * max(self._planned.size - self._bytes, 0) / max(self._bytes, 1)
        say(f"{self._recordings:,} of {total:,} recordings done; about {_format_duration(left)} left")


def _format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _report_result(result: Result, quiet: bool) -> None:
    """Report the result of a run; exit with 3 if something was skipped."""
    from ..analyzer.model.text import count

    if not quiet:
        done = [outcome for outcome in result.outcomes if outcome.done]
        seconds = sum(outcome.seconds for outcome in done)
        rpcs = sum(outcome.rpcs for outcome in done)
        say(f"{count(len(done), 'recording')} analyzed, {count(rpcs, 'RPC')}, {seconds:,.1f} s of worker time")
        if result.joined_rpcs:
            say(f"{count(result.joined_rpcs, 'RPC')} recorded at both ends")
    for host, files in result.left_out.items():
        for file in files[:MOST_FILES_NAMED]:
            say(f"skipped: {f'{host}: ' if host else ''}{file.file}: {file.reason}")
        if len(files) > MOST_FILES_NAMED:
            say(f"skipped: {f'{host}: ' if host else ''}{len(files) - MOST_FILES_NAMED:,} more")
    if result.left_out:
        number = sum(map(len, result.left_out.values()))
        again = "; run again to retry them" if result.failed else ""
        fail(f"{count(number, 'file or recording', 'files and recordings')} skipped{again}", UNREADABLE)
    if not any(outcome.rpcs for outcome in result.outcomes) and not result.plan.complete and not result.plan.is_shard:
        fail("no gRPC traffic found in any recording", NO_GRPC)


ROWS_SHOWN = 10
"""Rows of each table of the report shown by default."""


@app.command("report", short_help="Report what is slow, why and since when.")
def report(
    dataset: Dataset,
    against: Annotated[
        str | None, typer.Option("--against", metavar="DATASET2", help="Report what changed since that dataset.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="Write an HTML page.")] = False,
    names: Annotated[
        Path | None,
        typer.Option(
            "--names",
            metavar="FILE",
            help="Names to show for hosts: lines like ADDRESS-OR-HOST NAME, as in /etc/hosts.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="Show at most N rows of each table; 0 for all.")
    ] = ROWS_SHOWN,
    output: Output = None,
    color: Color = When.auto,
) -> None:
    """Report what is slow, why and since when, over all recordings of a dataset."""
    if as_html and as_json:
        fail("--html cannot be combined with --json", 2)
    with _handle_errors():
        from ..fleet.answers import terminal
        from ..fleet.answers.against import against as compared
        from ..fleet.answers.report import report as report_of

        given = _read_names(names) if names else {}
        found = report_of(dataset, None if against else limit or None, given)
        changes = compared(found, report_of(against, None, given)) if against else None
    if as_json:
        from ..reports import analysis_json

        write(analysis_json.encode(changes or found), output)
        return
    if as_html:
        from ..fleet.answers import html

        write(html.render_against(changes) if changes else html.render(found), output)
        return
    width, colour = columns(output, 120), coloured(output)
    if changes:
        write(terminal.render_against(changes, width=width, colour=colour), output)
    else:
        write(terminal.render(found, width=width, colour=colour), output)


def _read_names(path: Path) -> dict[str, str]:
    """Read names of hosts; the first of several lines counts, as the system's resolver does it."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {getattr(error, 'strerror', None) or error}", UNREADABLE)
    given = {}
    for key, *named in (words for line in reversed(lines) if (words := line.partition("#")[0].split())):
        if named:
            given[key] = named[0]
            with suppress(ValueError):  # as reports write addresses of version 6
                given[f"[{IPv6Address(key)}]"] = named[0]
    return given


@app.command("fetch", short_help="Copy the captures of a recording into a folder.")
def fetch(
    dataset: Dataset,
    recording: Annotated[str, typer.Argument(metavar="RECORDING", help="Name of the recording in the report.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder; created if missing.")],
) -> None:
    """Copy the captures of a recording from their store into a folder."""
    with _handle_errors():
        from ..fleet.dataset import catalog as dataset_of
        from ..fleet.recordings import store
        from ..fleet.recordings.credentials import without_credentials

        if not dataset_of.read_contents(dataset):
            fail(f"{without_credentials(dataset)}: not a dataset of grpcdiag fleet analyze", UNREADABLE)
        found = dataset_of.find_marker(dataset, recording)
        if found is None:
            fail(f"{without_credentials(dataset)}: has no recording {recording}", 2)
        for path in store.copy(found.files, output):
            typer.echo(path)
