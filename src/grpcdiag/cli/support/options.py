"""Options that several commands have, and how their values are parsed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from .terminal import When, set_colour

if TYPE_CHECKING:
    from ...analyzer.selection.selection import Moment, WallTime

TIMES_HELP = "seconds after the first packet (1.5, 800ms), or UTC (10:15:00.2, 2024-05-01T10:15:00.2Z)."
_UNITS = {"": 1_000_000_000, "s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "µs": 1_000, "ns": 1}

_CAPTURE = "pcap or pcapng, plain or compressed; - for standard input. Several files: one rotated capture, in any order"
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help=f"{_CAPTURE}.")]
FilesOfEnds = Annotated[
    list[str], typer.Argument(metavar="FILE...", help=f"{_CAPTURE}, or captures of both ends of the connections.")
]
FilesOrStream = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help=f"{_CAPTURE}, or captures of both ends of the connections. tcp://HOST:PORT: packets from a sender there.",
    ),
]
Ports = Annotated[
    list[int] | None,
    typer.Option(
        "--port",
        metavar="PORT",
        min=1,
        max=65535,
        help="Decode this port as HTTP/2, whatever its bytes look like; repeatable.",
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="LABEL=METHOD|FILE",
        help="Name a method that the capture does not: 'method #2=/shop.v1.Cart/Get', or a file with one per line; "
        "repeatable.",
    ),
]
KeyLog = Annotated[
    Path | None,
    typer.Option(
        "--keylog", metavar="FILE", help="TLS secrets in the format of SSLKEYLOGFILE. Default: FILE.grpcdiag-keys."
    ),
]
Memory = Annotated[
    int | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        parser=lambda text: memory_size(text),
        help="Memory limit, such as 500M or 2GiB; what exceeds it goes to temporary files (in TMPDIR).",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no messages on standard error.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write to this file instead of standard output."),
]


class ReadOptions(Struct, frozen=True):
    """How every command that decodes captures reads them."""

    port: Ports = None
    keylog: KeyLog = None
    memory: Memory = None

    @property
    def labels(self) -> list[str]:
        """List the names given to methods that the capture does not name."""
        return []


class NamingOptions(ReadOptions, frozen=True):
    """The same, with names for methods that the capture does not name."""

    label: Labels = None

    @property
    def labels(self) -> list[str]:
        """List the names that were given."""
        return self.label or []


From = Annotated[
    Any,
    typer.Option("--from", metavar="TIME", parser=lambda text: moment(text), help=f"Start of the range: {TIMES_HELP}"),
]
To = Annotated[
    Any,
    typer.Option(
        "--to", metavar="TIME", parser=lambda text: moment(text), help="End of the range, in the format of --from."
    ),
]

Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        metavar="PATTERN",
        help="Select RPCs of this method: /package.Service/Method, a part of it, or a pattern with * and ?.",
    ),
]

Trace = Annotated[
    int | None,
    typer.Option(
        "--trace",
        metavar="ID",
        parser=lambda text: trace_id(text),
        help="Select RPCs of this trace, by the trace-id of traceparent.",
    ),
]

ShowMessages = Annotated[
    bool, typer.Option("--show-messages", help="Show all texts of errors (grpc-message), which may hold secrets.")
]

LEAST_MEMORY = 200_000_000
"""Smallest `--memory` in bytes: see docs/memory.md."""

_SIZES = {"": 1, "K": 1_000, "M": 1_000**2, "G": 1_000**3, "T": 1_000**4}
_BINARY_SIZES = {"KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}


Color = Annotated[
    When,
    typer.Option(
        "--color",
        callback=set_colour,
        help="Colours; auto: on a terminal, or if FORCE_COLOR is set, and not if NO_COLOR is set.",
    ),
]

Client = Annotated[
    list[Path] | None,
    typer.Option(
        "--client",
        metavar="MEASURED",
        help="Join what the client measured with the RPCs: ghz or k6 JSON, OpenTelemetry spans (OTLP JSON lines or "
        "protobuf), Jaeger JSON, CSV; repeatable.",
    ),
]


def memory_size(text: str) -> int:
    """Parse a memory limit: `500M`, `1G`, `1GiB`, `2GB`. Raises BadParameter."""
    number, unit = r"(\d{1,12}(?:\.\d{1,9})?|\.\d{1,9})", r"([KMGT]I?)?B?"
    match = re.fullmatch(rf"{number}\s*{unit}", text.strip(), re.IGNORECASE | re.ASCII)
    if not match:
        raise typer.BadParameter(f"{text!r} is not a size: write bytes with a unit, such as 500M, 1G or 1GiB")
    size = round(float(match[1]) * (_SIZES | _BINARY_SIZES)[(match[2] or "").upper()])
    if size < LEAST_MEMORY:
        raise typer.BadParameter(f"{text} is too small: the minimum is {LEAST_MEMORY // 1_000_000}M")
    return size


def trace_id(text: str) -> int:
    """Parse a trace-id: 32 hexadecimal digits, as in traceparent. Raises BadParameter."""
    if not re.fullmatch(r"[0-9a-fA-F]{32}", text):
        raise typer.BadParameter(f"{text!r} is not a trace-id: write its 32 hexadecimal digits")
    return int(text, 16)


def moment(text: str) -> Moment:
    """Parse a time after the first packet (`1.5`, `1.5s`, `800ms`), or one in UTC. Raises BadParameter."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d*)?|\.\d+)\s*(s|ms|us|µs|ns|)", text.strip())
    if match:
        return round(float(match[1]) * _UNITS[match[2]])
    if ":" in text:
        return wall_time(text)
    raise typer.BadParameter(
        f"{text!r} is not a time: write seconds after the first packet (1.5, 800ms, 250us), or UTC (10:15:00.2)"
    )


def wall_time(text: str) -> WallTime:
    """Parse a time in UTC, with its date or without: `2024-05-01T10:15:00.2Z`, `10:15:00.2`. Raises BadParameter."""
    from datetime import UTC, datetime

    from ...analyzer.selection.selection import WallTime

    pattern = r"(?:(\d{4}-\d\d-\d\d)[T ])?(\d\d:\d\d(?::\d\d)?)(?:(?<=:..:..)\.(\d{1,9}))?Z?"
    match = re.fullmatch(pattern, text.strip(), re.ASCII)
    try:
        if not match:
            raise ValueError
        at = datetime.fromisoformat(f"{match[1] or '1970-01-01'}T{match[2]}+00:00") - datetime.fromtimestamp(0, UTC)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time in UTC: write 10:15:00.2 or 2024-05-01T10:15:00.2Z") from None
    fraction = int((match[3] or "").ljust(9, "0"))
    return WallTime((at.days * 86_400 + at.seconds) * 1_000_000_000 + fraction, dated=match[1] is not None)


def one_after_the_other(from_: Any, to: Any) -> None:
    """Check that a range does not end before it begins. Times of day may be of two days. Raises BadParameter."""
    dated = getattr(from_, "dated", True) and getattr(to, "dated", True)
    if from_ is not None and type(from_) is type(to) and dated and from_ > to:
        raise typer.BadParameter("--from is after --to")
