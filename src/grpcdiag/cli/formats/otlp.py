"""Write the OpenTelemetry spans of `grpcdiag export --format otlp` piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support.common import fail, progress, refuse_own_input, say, write_pieces

if TYPE_CHECKING:
    from ...analyzer.decode.runner import DecodeOptions

PROTOBUF = (".pb", ".bin")
"""Suffixes of files that get protobuf."""


def write_spans(files: list[str], chosen: DecodeOptions, output: Path | None, quiet: bool) -> None:
    """Write the spans of a capture's RPCs; exit with 2 if that is impossible. Raises CaptureError, NoGrpcError."""
    if output == Path("-"):
        output = None
    encode = _choose_encoder(output)
    counted = _Counted(_read(files, chosen, quiet))
    refuse_own_input(output, files)
    write_pieces(encode(counted), output)
    if output is not None and not quiet:
        say(f"{output}: {counted.number:,} spans")


def _choose_encoder(output: Path | None) -> Callable[[Iterable[dict[str, Any]]], Iterator[bytes]]:
    """Choose the encoder by the suffix of the file; exit with 2 if its package is missing."""
    if output is None or output.suffix not in PROTOBUF:
        from ...reports.otlp.json_lines import write_json

        return write_json
    try:
        from ...reports.otlp.protobuf import write_protobuf
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] not in ("opentelemetry", "google"):
            raise
        fail("OTLP protobuf needs opentelemetry-proto: pip install 'grpcdiag[otlp]'; other suffixes give JSON", 2)
    return write_protobuf


class _Counted:
    """Spans, counted."""

    def __init__(self, spans: Iterable[list[dict[str, Any]]]) -> None:
        self._spans = spans
        self.number = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for some in self._spans:
            self.number += len(some)
            yield from some


def _read(files: list[str], chosen: DecodeOptions, quiet: bool) -> Iterator[list[dict[str, Any]]]:
    """Read the capture and make its spans; both legs of calls through a proxy are joined."""
    from msgspec.structs import replace

    from ...analyzer.decode.errors import NoGrpcError
    from ...analyzer.hops.look import find_legs
    from ...analyzer.summary.figures import why_no_grpc
    from ...analyzer.views.span_data import read_span_data
    from ...reports.otlp.spans import list_spans

    with progress(quiet) as report_progress:
        data = read_span_data(files, progress=report_progress, **chosen)
    if not data.tables.rpc_count:
        raise NoGrpcError(why_no_grpc(data.tables))
    if data.events_left_out and not quiet:
        say(f"{data.events_left_out:,} retransmissions and PINGs are left out: only the first ones become events")
    legs = find_legs(files, **chosen)
    if legs is None:
        return list_spans(data, None)
    return list_spans(replace(data, tables=replace(data.tables, rpc_budgets=legs.tables.rpc_budgets)), legs.parent)
