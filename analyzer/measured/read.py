"""Read a record of any format; its bytes show which one it is."""

import gzip
import io
import zlib
from collections.abc import Iterator

import msgspec
from msgspec import Raw, Struct, json

from . import csv_file, ghz, jaeger, k6, otlp, otlp_protobuf
from .record import MOST_BYTES, Record, RecordError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_NONE_OF_THEM = "it is not ghz JSON, OTLP (JSON or protobuf), Jaeger JSON, k6 JSON, or CSV with start_time and duration"


ABSENT = Raw(b"null")


class Document(Struct, rename="camel"):
    """The properties that distinguish the JSON formats."""

    details: Raw = ABSENT
    options: Raw = ABSENT
    resource_spans: Raw = ABSENT
    data: Raw = ABSENT
    metric: str | None = None
    type: str | None = None
    spans: Raw = ABSENT


_document = json.Decoder(Document)


def read_record(data: bytes) -> Record:
    """Read the calls of a file. Raises RecordError."""
    try:
        return _read(_inflate(data))
    except RecordError:
        raise
    except msgspec.ValidationError as error:
        raise RecordError(f"it does not match its format: {error}") from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RecordError(f"not readable, perhaps cut: {error}") from None


def _inflate(data: bytes) -> bytes:
    if data.startswith(_ZSTD):
        raise RecordError("it is compressed with zstd: decompress it with zstd -d")
    if data.startswith(_GZIP):
        try:
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(MOST_BYTES + 1)
        except EOFError:
            raise RecordError("gzip: the file is cut") from None
        except (OSError, zlib.error) as error:
            raise RecordError(f"gzip: {error}") from None
    if len(data) > MOST_BYTES:
        raise RecordError(f"it is larger than {MOST_BYTES >> 20} MiB")
    return data


def _read(data: bytes) -> Record:
    if otlp_protobuf.looks_like(data):
        return otlp_protobuf.read(data)
    begin = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if begin in (b"{", b"["):
        return _read_json(data.removeprefix(b"\xef\xbb\xbf"), begin)
    text = data.decode("utf-8-sig") if b"\0" not in data[:1_024] else ""
    header = text.partition("\n")[0]
    if "," not in header:
        raise RecordError(_NONE_OF_THEM)
    return csv_file.read(text)


def _read_json(data: bytes, begin: bytes) -> Record:
    if begin == b"[":
        return jaeger.read([Raw(data)])
    found = [(line, document) for line, document in _list_documents(data)]
    if resources := [one.resource_spans for _, one in found if _has(one.resource_spans)]:
        return otlp.read(resources)
    if any(one.metric for _, one in found):
        return k6.read((line, one.data) for line, one in found if one.metric == k6.METRIC and one.type == "Point")
    if found and _has(found[0][1].details):
        return ghz.read(found[0][1].details, found[0][1].options)
    traces = [one.data for _, one in found if _has(one.data)]
    spans = [one.spans for _, one in found if _has(one.spans)]
    if traces or spans:
        return jaeger.read(traces, spans)
    raise RecordError(_NONE_OF_THEM)


def _has(value: Raw) -> bool:
    return bytes(value) != b"null"


def _list_documents(data: bytes) -> Iterator[tuple[int, Document]]:
    """Yield the document, or one document per line, each with its line number. Raises RecordError."""
    lines = data.splitlines()
    try:
        first = next(place for place, line in enumerate(lines) if line.strip())
        json.decode(lines[first], type=Document)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        yield 1, _document.decode(data)
        return
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield number, _document.decode(line)
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError as error:
                raise RecordError(f"line {number} is not readable, perhaps cut: {error}") from None
