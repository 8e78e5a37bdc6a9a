"""Read ghz's JSON (`--format json`): one row per call, with the time at which it ended.

ghz writes local time and drops trailing zeros of fractions of a second. Rows have neither method nor connection.
"""

from msgspec import Raw, Struct, json

from .record import Call, Record, make_call
from .times import parse_instant


class Detail(Struct):
    """A row of `details`."""

    timestamp: str
    """When the call ended."""
    latency: int
    """Nanoseconds."""
    status: str | None = None


class Options(Struct):
    """Options of the ghz run."""

    call: str | None = None
    host: str | None = None


_details = json.Decoder(list[Detail])
_options = json.Decoder(Options | None)


def read(details: Raw, options: Raw) -> Record:
    """Read the calls. Raises RecordError, msgspec's errors."""
    asked = _options.decode(options) or Options()
    calls, zones = [], True
    for number, row in enumerate(_details.decode(details), start=1):
        call, has_zone = _read_row(row, asked.call, f"call {number}")
        calls.append(call)
        zones &= has_zone
    return Record("ghz", calls, asked.host, zones)


def _read_row(row: Detail, method: str | None, where: str) -> tuple[Call, bool]:
    end, has_zone = parse_instant(row.timestamp, where)
    return make_call(end - row.latency, row.latency, where, method, row.status), has_zone
