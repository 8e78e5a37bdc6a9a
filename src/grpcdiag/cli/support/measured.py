"""Read what clients measured, and add it to an analysis."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .common import UNREADABLE, fail

if TYPE_CHECKING:
    from ...analyzer.measured.record import Record
    from ...analyzer.model.analysis import Analysis
    from ...analyzer.tables import Tables

Records = Sequence[tuple[str, "Record"]]
"""Records of calls with the names of their files."""


def read_records(paths: Sequence[Path]) -> Records:
    """Read the records; exit with 3 if one is none, or if none has a call."""
    records = []
    for path in paths:
        record = find_record(path)
        if isinstance(record, str):
            fail(f"{path}: {record}", UNREADABLE)
        records.append((str(path), record))
    if paths and not any(record.calls for _, record in records):
        fail(f"{', '.join(map(str, paths))}: no call of a gRPC client in it", UNREADABLE)
    return records


def find_record(path: Path) -> Record | str:
    """Read the record of a file, or say why that is impossible."""
    from ...analyzer.measured.read import read_record
    from ...analyzer.measured.record import MOST_BYTES, RecordError

    try:
        with path.open("rb") as file:
            return read_record(file.read(MOST_BYTES + 1))
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except RecordError as error:
        return f"no record of a client's calls: {error}"


def add_client(analysis: Analysis, tables: Tables, records: Records) -> Analysis:
    """Add what the client measured to the analysis of a capture whose RPCs have a row each."""
    if not records:
        return analysis
    from msgspec.structs import replace

    from ...analyzer.measured.figures import describe_client
    from ...analyzer.measured.lead import lead_verdict

    client = describe_client(records, tables)
    return replace(analysis, client=client, verdict=lead_verdict(analysis, client))
