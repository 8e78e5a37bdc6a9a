"""Read a capture with Wireshark, by pyshark: every TCP packet, every HTTP/2 frame, every status.

pyshark runs tshark and gives one object per packet. To be as light as that can be, tshark prints only the layers that
are compared (`-J`), no packet is kept, and an event loop of its own spares the child watcher that pyshark would
install in the main thread. The layers come as JSON: pyshark's other lean form loses all but the first HTTP/2 frame of
a packet.

Wireshark reads as well as it can be made to: gRPC's own dissector is off, because DATA frames that follow it in a
packet get lost (27 of a packet's frames are listed, and then a frame that the packet does not hold, in 4.0); frames
over packets out of order are put together, but not where the capture lacks bytes, because then Wireshark would wait
for them to the end of the connection.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .. import _core
from ..tables import Tables
from .records import CaptureRecords, Frame, Packet, Ports, Status, ports

LAYERS = ("frame", "ip", "ipv6", "tcp", "http2")
"""Layers tshark prints."""

RETRANSMISSIONS = frozenset(("retransmission", "fast_retransmission", "spurious_retransmission"))
"""Wireshark's names for retransmitted packets (`tcp.analysis.*`)."""

NOTES = RETRANSMISSIONS | {"out_of_order", "keep_alive", "lost_segment"}
"""Parts of `tcp.analysis` that matter here."""

STEP = 500
"""Packets between two reports of progress."""

_NOT_DIRECTED = -1


class WiresharkError(Exception):
    """Wireshark cannot be used; the message says what to do."""


def version() -> str:
    """Return Wireshark's version. Raises WiresharkError when pyshark or tshark is missing."""
    try:
        from pyshark.tshark import tshark
    except ImportError:
        raise WiresharkError("pyshark is not installed: pip install pyshark (the extra `verify`)") from None
    try:
        return str(_version_of(tshark.get_process_path()))
    except tshark.TSharkNotFoundException:
        raise WiresharkError("tshark is not installed: install Wireshark's command line (apt install tshark)") from None
    except (tshark.TSharkVersionException, OSError) as error:
        raise WiresharkError(f"tshark does not run: {error}") from None


@functools.cache
def _version_of(path: str) -> Any:
    """Ask tshark for its version once: the answer takes it as long as reading a small capture."""
    from pyshark.tshark.tshark import get_tshark_version

    return get_tshark_version(path)


def read_wireshark(
    path: str, tables: Tables, *, keylog: str | None = None, progress: Callable[[int], None] | None = None
) -> CaptureRecords:
    """Read a file with Wireshark, configured from grpcdiag's tables, which must have rows of packets and frames.

    Raises WiresharkError.
    """
    whole = not (tables.connections.missing_bytes > 0).any()
    return account(path, ports(tables), keylog=keylog, reorder=bool(whole), progress=progress)


def account(
    path: str,
    decoded: Ports,
    *,
    keylog: str | None = None,
    reorder: bool = True,
    progress: Callable[[int], None] | None = None,
) -> CaptureRecords:
    """Read one file with Wireshark.

    The ports `decoded` determine the protocols; `keylog` is the path of a TLS key log; `reorder` puts
    frames together over packets out of order; `progress` is told the number of the packet that was read. Raises
    WiresharkError.
    """
    preferences = {"tcp.reassemble_out_of_order": "TRUE" if reorder else "FALSE", "tcp.check_checksum": "FALSE"}
    if keylog:
        preferences["tls.keylog_file"] = keylog
    records = CaptureRecords()
    for number, packet in enumerate(_packets(path, preferences, _decode_as(decoded), records), start=1):
        _take(packet, records)
        if progress and number % STEP == 0:
            progress(int(packet.number))
    return records


def _decode_as(decoded: Ports) -> Mapping[str, str]:
    as_what = (("tls", decoded.tls), ("http", decoded.upgraded), ("http2", decoded.http2))
    return {f"tcp.port=={port}": what for what, numbers in as_what for port in sorted(numbers)}


def _packets(
    path: str, preferences: Mapping[str, str], decode_as: Mapping[str, str], records: CaptureRecords
) -> Iterator[Any]:
    """Yield TCP packets of the file; a warning of Wireshark at the end becomes a note."""
    version()
    loop = asyncio.new_event_loop()
    try:
        capture = _capture_class()(
            path,
            keep_packets=False,
            use_json=True,
            display_filter="tcp",
            decode_as=decode_as,
            disable_protocol="grpc",
            override_prefs=preferences,
            custom_parameters=["-J", " ".join(LAYERS)],
            eventloop=loop,
        )
        try:
            yield from capture
        finally:
            capture.close()
        if capture.complaint is not None:
            if not records.packets:
                raise WiresharkError(f"Wireshark cannot read {path}: {capture.complaint}")
            records.notes.append(capture.complaint)
    finally:
        loop.close()


def _capture_class() -> Any:
    """Make a subclass of pyshark's capture that waits until tshark ends.

    The original kills tshark after its last packet, which sometimes loses the exit code that reports damage.
    """
    from pyshark import FileCapture

    class PatientCapture(FileCapture):  # type: ignore[misc]
        complaint: str | None = None

        def _get_tshark_version(self) -> Any:
            return _version_of(self._get_tshark_path())

        async def _cleanup_subprocess(self, process: Any) -> None:
            if not self._eof_reached:
                await super()._cleanup_subprocess(process)
            elif await process.wait():
                await asyncio.gather(*self._stderr_handling_tasks)
                self.complaint = self._last_error_line or f"tshark ended with {process.returncode}"
            self._running_processes.discard(process)

    return PatientCapture


def _take(packet: Any, records: CaptureRecords) -> None:
    """Add one packet with its frames; packets quoted in ICMP errors are skipped."""
    tcp, protocols = _last(packet, "tcp"), str(_field(packet.frame_info, "frame.protocols"))
    connection = _number(tcp, "tcp.stream")
    if connection is None or "icmp" in protocols:
        return
    row = _packet(packet, tcp, connection)
    if row is not None:
        records.packets.append(row)
    for stream in _streams(packet):
        _frame(stream, int(packet.number), connection, records)


def _packet(packet: Any, tcp: Any, connection: int) -> Packet | None:
    """Make a packet's row; None when its TCP header is incomplete."""
    seq, length = _number(tcp, "tcp.seq"), _number(tcp, "tcp.len")
    ip = _last(packet, "ip") or _last(packet, "ipv6")
    if seq is None or length is None or ip is None:
        return None
    source = str(_field(ip, f"{ip.layer_name}.src"))
    sender = f"[{source}]:{_number(tcp, 'tcp.srcport')}" if ":" in source else f"{source}:{_number(tcp, 'tcp.srcport')}"
    whole, recorded = _number(packet.frame_info, "frame.len") or 0, _number(packet.frame_info, "frame.cap_len") or 0
    seconds, _, fraction = str(_field(packet.frame_info, "frame.time_epoch")).partition(".")
    clock = _field(_field(tcp, "tcp.options_tree"), "tcp.options.timestamp_tree")
    flags = _field(_field(tcp, "tcp.analysis"), "tcp.analysis.flags")
    return Packet(
        int(packet.number),
        connection,
        sender,
        _NOT_DIRECTED,
        seq,
        length,
        max(length - (whole - recorded), 0),
        frozenset(_names(flags)) & NOTES if flags is not None else frozenset(),
        int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9] or 0),
        _number(tcp, "tcp.ack") or 0,
        _number(clock, "tcp.options.timestamp.tsval"),
        _number(clock, "tcp.options.timestamp.tsecr"),
        _number(ip, "ip.id"),
    )


def _last(packet: Any, name: str) -> Any:
    """Find the innermost layer of that name, because tunnels have several; None without one."""
    for layer in packet.layers:
        if layer.layer_name == name:
            return layer.duplicate_layers[-1] if layer.duplicate_layers else layer
    return None


def _names(field: Any) -> Iterator[str]:
    """Yield the last parts of the names of all fields below this one."""
    for part in field if isinstance(field, list) else [field]:
        for name in getattr(part, "field_names", ()):
            yield name.rsplit(".", 1)[-1]
            yield from _names(part.get_field(name))


def _streams(packet: Any) -> Iterator[Any]:
    """Yield the HTTP/2 frames of a packet in order."""
    for layer in packet.layers:
        if layer.layer_name == "http2":
            for http2 in (layer, *layer.duplicate_layers):
                yield from _listed(_field(http2, "http2.stream"))


def _frame(stream: Any, number: int, connection: int, records: CaptureRecords) -> None:
    kind, identifier = _number(stream, "http2.type"), _number(stream, "http2.streamid")
    if kind is None or identifier is None:
        return  # the connection preface, which has no frame header
    flags, length = _number(stream, "http2.flags") or 0, _number(stream, "http2.length") or 0
    records.frames.append(Frame(number, connection, _NOT_DIRECTED, kind, flags, identifier, length))
    for header in _listed(_field(stream, "http2.header")):
        name, value = str(_field(header, "http2.header.name")), str(_field(header, "http2.header.value"))
        if name == "grpc-status":
            records.statuses.append(Status(number, connection, identifier, _status(value)))
        elif name == ":status":
            records.http_statuses.append(Status(number, connection, identifier, value))


def _status(value: str) -> str:
    """Name a gRPC status code; other text stays as it is."""
    return _core.STATUSES[int(value)] if value.isdecimal() and int(value) < len(_core.STATUSES) else value


def _listed(field: Any) -> Iterable[Any]:
    return field if isinstance(field, list) else [] if field is None else [field]


def _number(layer: Any, name: str) -> int | None:
    """Read a field as a number, None without it; the first one when it occurs twice."""
    value = _field(layer, name)
    value = value[0] if isinstance(value, list) else value
    try:
        return None if value is None else int(str(value), 0)
    except ValueError:
        return None


def _field(layer: Any, name: str) -> Any:
    """Find a field by its full name; None without it."""
    try:
        return None if layer is None else layer.get_field(name)
    except AttributeError:
        return None
