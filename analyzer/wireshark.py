"""Wireshark's reading of a capture, by pyshark: every TCP packet, every HTTP/2 frame, every `grpc-status`.

pyshark runs tshark and gives one object per packet. To be as light as that can be, tshark prints only the layers that
are compared (`-J`), no packet is kept, and an event loop of its own spares the child watcher that pyshark would
install in the main thread. The layers come as JSON: pyshark's other lean form loses all but the first HTTP/2 frame of
a packet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .second_opinion import Account, Frame, Packet, Status

LAYERS = ("frame", "ip", "ipv6", "tcp", "tls", "http2")
"""Layers tshark prints."""

RETRANSMISSIONS = ("retransmission", "fast_retransmission", "spurious_retransmission")
"""What Wireshark calls a packet whose bytes were sent before (`tcp.analysis.*`)."""

NOTES = (*RETRANSMISSIONS, "out_of_order", "keep_alive", "lost_segment", "ack_lost_segment", "duplicate_ack")
"""Parts of `tcp.analysis` that matter here."""

STEP = 1_000
"""Packets between two reports of progress."""


class WiresharkError(Exception):
    """Wireshark cannot be asked; the message says what to do."""


def version() -> str:
    """Wireshark's version. Raises WiresharkError when pyshark or tshark is missing."""
    try:
        from pyshark.tshark import tshark
    except ImportError:
        raise WiresharkError("pyshark is not installed: pip install 'grpcdiag[verify]'") from None
    try:
        return str(tshark.get_tshark_version())
    except tshark.TSharkNotFoundException:
        raise WiresharkError("tshark is not installed: install Wireshark's command line (apt install tshark)") from None
    except (tshark.TSharkVersionException, OSError) as error:
        raise WiresharkError(f"tshark does not run: {error}") from None


def account(
    path: str,
    *,
    http2_ports: Iterable[int] = (),
    tls_ports: Iterable[int] = (),
    keylog: str | None = None,
    reorder: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Account:
    """What Wireshark says of one file.

    `http2_ports` and `tls_ports` are decoded so whatever they look like: Wireshark does not look for HTTP/2 on ports
    it does not know. `keylog` is the path of a TLS key log; `progress` is told how many packets were read. Raises
    WiresharkError.
    """
    said = Account()
    preferences = {"tcp.reassemble_out_of_order": "TRUE" if reorder else "FALSE", "tcp.check_checksum": "FALSE"}
    if keylog:
        preferences["tls.keylog_file"] = keylog
    decode_as = {f"tcp.port=={port}": "tls" for port in tls_ports} | {f"tcp.port=={p}": "http2" for p in http2_ports}
    for number, packet in enumerate(_packets(path, preferences, decode_as, said), start=1):
        _take(packet, said)
        if progress and number % STEP == 0:
            progress(int(packet.number))
    return said


def _packets(
    path: str, preferences: Mapping[str, str], decode_as: Mapping[str, str], said: Account
) -> Iterator[Any]:
    """TCP packets of the file; what Wireshark complained of at the end becomes a note."""
    version()
    loop = asyncio.new_event_loop()
    try:
        capture = _capture_class()(
            path,
            keep_packets=False,
            use_json=True,
            display_filter="tcp",
            decode_as=decode_as,
            override_prefs=preferences,
            custom_parameters=["-J", " ".join(LAYERS)],
            eventloop=loop,
        )
        try:
            yield from capture
        finally:
            capture.close()
        if capture.complaint is not None:
            if not said.packets:
                raise WiresharkError(f"Wireshark cannot read {path}: {capture.complaint}")
            said.notes.append(capture.complaint)
    finally:
        loop.close()


def _capture_class() -> Any:
    """pyshark's capture, which waits for tshark's own end: the original kills it after its last packet, and then its
    exit code, which tells of damage, is lost every now and then."""
    from pyshark import FileCapture

    class PatientCapture(FileCapture):  # type: ignore[misc]
        complaint: str | None = None

        async def _cleanup_subprocess(self, process: Any) -> None:
            if not self._eof_reached:
                await super()._cleanup_subprocess(process)
            elif await process.wait():
                await asyncio.gather(*self._stderr_handling_tasks)
                self.complaint = self._last_error_line or f"tshark ended with {process.returncode}"
            self._running_processes.discard(process)

    return PatientCapture


def _take(packet: Any, said: Account) -> None:
    tcp = _last(packet, "tcp")
    if tcp is None or "icmp" in packet.frame_info.get_field("frame.protocols"):
        return  # a piece of a packet that an ICMP error quotes
    number, connection = int(packet.number), int(tcp.get_field("tcp.stream"))
    ip = _last(packet, "ip") or _last(packet, "ipv6")
    addresses = ("", "")
    if ip is not None:
        name = ip.layer_name
        addresses = (str(ip.get_field(f"{name}.src")), str(ip.get_field(f"{name}.dst")))
    said.packets.append(
        Packet(
            number,
            connection,
            f"{addresses[0]} {tcp.get_field('tcp.srcport')}",
            f"{addresses[1]} {tcp.get_field('tcp.dstport')}",
            int(tcp.get_field("tcp.seq")),
            int(tcp.get_field("tcp.len")),
            int(str(tcp.get_field("tcp.flags")), 0),
            _notes(tcp),
            _sent_at(tcp),
        )
    )
    for stream in _streams(packet):
        _frame(stream, number, connection, said)


def _last(packet: Any, name: str) -> Any:
    """The innermost layer of that name, as tunnels carry several; None without."""
    for layer in packet.layers:
        if layer.layer_name == name:
            return layer.duplicate_layers[-1] if layer.duplicate_layers else layer
    return None


def _sent_at(tcp: Any) -> int | None:
    """The sender's clock in the TCP timestamps option (RFC 7323 section 3), None without."""
    options = _field(tcp, "tcp.options_tree")
    value = options and _field(_field(options, "tcp.options.timestamp_tree"), "tcp.options.timestamp.tsval")
    return None if value is None else int(value)


def _notes(tcp: Any) -> frozenset[str]:
    """Parts of `tcp.analysis` that tshark raised for a packet."""
    if "analysis" not in tcp.field_names:
        return frozenset()
    return frozenset(name for name in _names(tcp.get_field("tcp.analysis")) if name in NOTES)


def _names(field: Any) -> Iterator[str]:
    """Last parts of the names of all fields below this one."""
    for part in field if isinstance(field, list) else [field]:
        for name in getattr(part, "field_names", ()):
            yield name.rsplit(".", 1)[-1]
            yield from _names(part.get_field(name))


def _streams(packet: Any) -> Iterator[Any]:
    """HTTP/2 frames of a packet in their order."""
    for layer in packet.layers:
        if layer.layer_name == "http2":
            for http2 in (layer, *layer.duplicate_layers):
                found = _field(http2, "http2.stream")
                yield from found if isinstance(found, list) else [] if found is None else [found]


def _frame(stream: Any, number: int, connection: int, said: Account) -> None:
    kind, identifier = _field(stream, "http2.type"), _field(stream, "http2.streamid")
    if kind is None or identifier is None:
        return  # the connection preface, which has no frame header
    said.frames.append(
        Frame(
            number,
            connection,
            int(str(kind), 0),
            int(str(_field(stream, "http2.flags") or 0), 0),
            int(str(identifier), 0),
            int(str(_field(stream, "http2.length") or 0), 0),
        )
    )
    headers = _field(stream, "http2.header")
    for header in headers if isinstance(headers, list) else [] if headers is None else [headers]:
        if str(_field(header, "http2.header.name")) == "grpc-status":
            said.statuses.append(
                Status(number, connection, int(str(identifier), 0), str(_field(header, "http2.header.value")))
            )


def _field(layer: Any, name: str) -> Any:
    """A field by its full name, None without."""
    try:
        return None if layer is None else layer.get_field(name)
    except AttributeError:
        return None
