"""Read k6's JSON lines (`--out json`): points of the metric `grpc_req_duration`, written when a call ends."""

from collections.abc import Iterable

from msgspec import Raw, Struct, field, json

from .record import Call, Record, RecordError, make_call
from .times import parse_instant

METRIC = "grpc_req_duration"


class Point(Struct):
    """The `data` of a point."""

    time: str
    """When the call ended."""
    value: float
    """Milliseconds."""
    tags: dict[str, str] | None = None
    metadata: dict[str, str] | None = field(default=None)


_point = json.Decoder(Point)


def read(points: Iterable[tuple[int, Raw]]) -> Record:
    """Read the points, each with the number of its line. Raises RecordError, msgspec's errors."""
    record = Record("k6", [])
    for line, text in points:
        call, has_zone = _read_point(_point.decode(text), f"line {line}")
        record.calls.append(call)
        record.has_zone &= has_zone
    return record


def _read_point(point: Point, where: str) -> tuple[Call, bool]:
    if not 0 <= point.value < 1e12:  # NaN too; more milliseconds than 30 years
        raise RecordError(f"{where}: {point.value} is no duration")
    end, has_zone = parse_instant(point.time, where)
    tags, duration = point.tags or {}, round(point.value * 1e6)
    service, method = tags.get("service"), tags.get("method")
    name = f"{service}/{method}" if service and method else tags.get("name")
    return make_call(end - duration, duration, where, name, tags.get("status")), has_zone
