"""Read the sidecar of a capture: settings of the host that recorded it, and congestion windows from its kernel.

`grpcdiag capture` writes two files (docs/recording.md): settings, and samples of sockets (`ss -tin`). They describe
only that host, and belong to only one capture: `check_match` decides whether it is this one.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct
from msgspec.structs import replace

from ..model.detector import About
from ..model.finding import Finding, Remedy, Skipped
from ..model.recorded import HostClock, RecordingFacts, ThreadTimes
from ..tables import DIRECTIONS, Ints, Measured, Tables
from ..tables.grouping import group_rows
from .names import SCHEMA
from .processes.record import ProcessRecord

CLOCK_NS = 2_000_000_000
"""How far a capture may reach beyond its recording's times (heuristic: clocks may be set meanwhile)."""
NEAR_SHARE, NEAR_SEGMENTS = 0.10, 2
"""An estimated congestion window is near the kernel's within this share of it, or so many segments."""
_MOST_ERROR_NS = 1 << 61
"""Largest error of a clock, 73 years: the sum of two must fit into 64 bits."""
_MOST_WINDOW = 1 << 30
"""Segments, and bytes per segment, that no Linux kernel reports."""


class Mismatch(Exception):
    """The sidecar does not belong to this capture, or cannot be read; the message says why."""


class _Packets(Struct, frozen=True):
    captured: int = 0
    dropped: int = 0
    dropped_by_interface: int = 0


class _Capture(Struct, frozen=True):
    interface: str | None = None
    rotate: Mapping[str, Any] | None = None


class _Chrony(Struct, frozen=True):
    synchronised: bool
    max_error_ns: int


class _Clock(Struct, frozen=True):
    synchronised: bool
    max_error_ns: int
    chrony: _Chrony | None = None


_Elapsed = Annotated[int, Meta(ge=0, le=1 << 62)]


class _Pressure(Struct, frozen=True):
    time_ns: _Elapsed
    """By a clock that is never set."""
    waited_us: _Elapsed
    """How long some thread has waited for a processor until then."""


class _Host(Struct, frozen=True):
    name: str = ""
    kernel: str = ""
    machine: Any = None
    boot: str | None = None
    clock: _Clock | None = None
    cpu_pressure: _Pressure | None = None
    addresses: tuple[str, ...] = ()
    sysctls: Mapping[str, str] = {}
    routes: tuple[Mapping[str, Any], ...] = ()


class _Document(Struct, frozen=True):
    schema: str
    started_time_ns: int
    host: _Host
    capture: _Capture = _Capture()
    ended_time_ns: int | None = None
    packets: _Packets | None = None
    command: Any = None
    sysctls_at_end: Mapping[str, str] | None = None
    cpu_pressure_at_end: _Pressure | None = None
    threads: ThreadTimes | None = None


class _Socket(Struct, frozen=True):
    local: str | None = None
    peer: str | None = None
    cwnd: int = 0
    mss: int = 0
    congestion_control: str | None = None
    lost: int = 0
    sacked: int = 0
    retrans: int = 0

    @property
    def has_usable_window(self) -> bool:
        """Check whether the window is usable: during a recovery it follows the bytes in flight (RFC 6937)."""
        known = 0 < self.cwnd < _MOST_WINDOW and 0 < self.mss < _MOST_WINDOW
        return known and not (self.lost or self.sacked or self.retrans)


class _Sample(Struct, frozen=True):
    from_ns: int
    to_ns: int
    sockets: tuple[_Socket, ...] = ()


class Windows(Struct, frozen=True, eq=False):
    """One end's congestion window over time, from its kernel; columns of equal length, ascending in time."""

    from_ns: Ints
    """When the sample began."""
    to_ns: Ints
    """When the sample ended."""
    bytes: Ints
    """The window."""
    mss: Ints
    """Bytes of a segment."""
    cubic: npt.NDArray[np.bool_]
    """Whether the congestion control was CUBIC."""


class Sidecar(Struct, frozen=True, eq=False):
    """The contents of a sidecar."""

    file: str
    document: _Document
    windows: Mapping[tuple[str, str], Windows]
    """By local and remote `address:port`."""
    samples: int
    processes: ProcessRecord | None = None
    """What the scheduler did; None when it was not recorded, or cannot be used."""

    def setting(self, name: str) -> str | None:
        """Look up a sysctl's value; None when it is unknown or changed meanwhile."""
        host, end = self.document.host, self.document.sysctls_at_end
        value = host.sysctls.get(name)
        return value if end is None or end.get(name) == value else None


def read(file: str, document: bytes, samples: Iterable[bytes] = ()) -> Sidecar:
    """Parse a sidecar; truncated and malformed lines are skipped. Raises Mismatch."""
    try:
        found = msgspec.json.decode(document, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Mismatch(f"it does not describe a recording: {error}") from None
    if found.schema != SCHEMA:
        raise Mismatch(f"its schema is {found.schema!r}, not {SCHEMA!r}")
    windows, count = _parse_windows(samples)
    return Sidecar(file, found, windows, count)


def _parse_windows(lines: Iterable[bytes]) -> tuple[dict[tuple[str, str], Windows], int]:
    decoder = msgspec.json.Decoder(_Sample)
    rows: dict[tuple[str, str], list[tuple[int, int, int, int, bool]]] = {}
    count = 0
    for line in lines:
        try:
            sample = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue  # a killed recording leaves a truncated last line
        count += 1
        if not 0 <= sample.from_ns <= sample.to_ns < 1 << 62:
            continue
        for s in sample.sockets:
            if s.local and s.peer and s.has_usable_window:
                row = (sample.from_ns, sample.to_ns, s.cwnd * s.mss, s.mss, s.congestion_control == "cubic")
                rows.setdefault((s.local, s.peer), []).append(row)
    return {ends: _make_columns(sorted(found)) for ends, found in rows.items()}, count


def _make_columns(rows: list[tuple[int, int, int, int, bool]]) -> Windows:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    return Windows(columns[0], np.maximum.accumulate(columns[1]), columns[2], columns[3], columns[4] != 0)


def check_match(tables: Tables, sidecar: Sidecar) -> None:
    """Check that the sidecar belongs to this capture and its host is an end of it. Raises Mismatch."""
    document, capture = sidecar.document, tables.capture
    first, last = capture["first_time_ns"], capture["last_time_ns"]
    if first is not None and first < document.started_time_ns - CLOCK_NS:
        raise Mismatch("the capture began before its recording")
    if last is not None and document.ended_time_ns is not None and last > document.ended_time_ns + CLOCK_NS:
        raise Mismatch("the capture continued after its recording")
    if document.packets and not document.capture.rotate and capture["packets"] > document.packets.captured:
        raise Mismatch(f"the capture has more packets than its recording ({document.packets.captured:,})")
    local = set(document.host.addresses)
    connections = tables.connections
    ends = {tables.addresses[int(i)] for column in (connections.client_ip, connections.server_ip) for i in set(column)}
    if not ends & local:
        raise Mismatch(f"no connection ends at the recording host, {document.host.name or 'unknown'}")


def apply_sidecar(tables: Tables, sidecar: Sidecar) -> tuple[RecordingFacts, Tables]:
    """Return the facts for reports, and the tables with measured values. Raises Mismatch."""
    check_match(tables, sidecar)
    better = replace_estimates(tables, sidecar)
    return collect_facts(tables, better, sidecar), better


def replace_estimates(tables: Tables, sidecar: Sidecar) -> Tables:
    """Replace estimated congestion windows by the kernel's, where a sample was taken in time.

    At a stop: a sample during the blocked interval, in which the sender sends nothing. Before idle time: the last
    sample between the sender's last data and the flight, because Linux restarts the window when it sends again
    (tcp_slow_start_after_idle_check, include/net/tcp.h).
    """
    waits = tables.waits
    at_stop = waits.congestion_window_bytes.copy()
    before = waits.window_before_idle_bytes.copy()
    stops, idles = (np.zeros(len(at_stop), dtype=bool) for _ in range(2))
    for rows, windows in _match_samples(tables, sidecar):
        begin, end = waits.start_time_ns[rows], _find_end(tables, rows)
        place = np.searchsorted(windows.from_ns, begin, side="right")
        inside = _answered_before(windows, place, end)
        at_stop[rows[inside]] = windows.bytes[place[inside]]
        stops[rows[inside]] = True
        inside, place = _find_in_idle_time(tables, rows, windows)
        before[rows[inside]] = windows.bytes[place[inside]]
        idles[rows[inside]] = True
    changed = replace(waits, congestion_window_bytes=at_stop, window_before_idle_bytes=before)
    return replace(
        tables, waits=changed, measured=Measured(stops, idles), capture=_add_dropped_packets(tables, sidecar)
    )


def _add_dropped_packets(tables: Tables, sidecar: Sidecar) -> Mapping[str, Any]:
    """Add the packets that tcpdump dropped, which a pcap file does not contain."""
    packets = sidecar.document.packets
    if packets is None or tables.capture["dropped_packets"] is not None:
        return tables.capture
    return {**tables.capture, "dropped_packets": packets.dropped + packets.dropped_by_interface}


def _match_samples(tables: Tables, sidecar: Sidecar) -> Iterable[tuple[Ints, Windows]]:
    """Yield the blocked intervals and samples of each end that was sampled."""
    waits = tables.waits
    for end, rows in group_rows(waits.connection.astype(np.int64) * 2 + waits.direction).items():
        connection, direction = divmod(end, 2)
        names = tables.client(connection), tables.server(connection)
        windows = sidecar.windows.get((names[direction], names[1 - direction]))
        if windows is not None:
            yield rows, windows


def _find_in_idle_time(tables: Tables, rows: Ints, windows: Windows) -> tuple[npt.NDArray[np.bool_], Ints]:
    """Find blocked intervals whose flight began after an idle time with a sample in it, and the last such sample."""
    waits = tables.waits
    idle, end = waits.idle_before_ns[rows], waits.flight_start_time_ns[rows]
    place = np.searchsorted(windows.to_ns, end, side="left") - 1
    inside = (place >= 0) & (idle > 0)
    inside &= windows.from_ns[np.maximum(place, 0)] > end - idle
    return inside, place


def _find_end(tables: Tables, rows: Ints) -> Ints:
    """Return until when the window was unchanged: the ACK that ended the interval, or when the sender resumed."""
    waits = tables.waits
    start, released = waits.start_time_ns[rows], waits.released_time_ns[rows]
    return np.where(released > start, released, start + waits.duration_ns[rows])


def _answered_before(windows: Windows, place: Ints, end: Ints) -> npt.NDArray[np.bool_]:
    inside = place < len(windows.to_ns)
    inside[inside] = windows.to_ns[place[inside]] < end[inside]
    return inside


def compare_estimates(tables: Tables, sidecar: Sidecar) -> tuple[int, int]:
    """Compare the estimates with the samples: count the CUBIC samples, and those near the estimate.

    A sample counts during a blocked interval, for whose beginning the estimate holds, and as the last one in an idle
    time. `tables` are those of the core, not those of `replace_estimates`.
    """
    waits = tables.waits
    count = near = 0
    for rows, windows in _match_samples(tables, sidecar):
        first = np.searchsorted(windows.from_ns, waits.start_time_ns[rows], side="right")
        behind = np.searchsorted(windows.to_ns, _find_end(tables, rows), side="left")
        lengths = np.maximum(behind - first, 0)
        inside = np.repeat(first - np.r_[0, np.cumsum(lengths)[:-1]], lengths) + np.arange(lengths.sum())
        idle, place = _find_in_idle_time(tables, rows, windows)
        _, once = np.unique(waits.flight[rows[idle]], return_index=True)
        estimates = np.r_[
            np.repeat(waits.congestion_window_bytes[rows], lengths), waits.window_before_idle_bytes[rows[idle][once]]
        ]
        places = np.r_[inside, place[idle][once]]
        known = windows.cubic[places] & (estimates >= 0)
        actual, segments = windows.bytes[places[known]], windows.mss[places[known]]
        close = np.abs(actual - estimates[known]) <= np.maximum(NEAR_SHARE * actual, NEAR_SEGMENTS * segments)
        count, near = count + int(known.sum()), near + int(close.sum())
    return count, near


def collect_facts(tables: Tables, better: Tables, sidecar: Sidecar) -> RecordingFacts:
    """Collect the facts for reports; `tables` are those of the core, `better` those of `replace_estimates`."""
    used = better.measured
    count, near = compare_estimates(tables, sidecar)
    host = sidecar.document.host
    return RecordingFacts(
        file=sidecar.file,
        host=host.name,
        kernel=host.kernel,
        samples=sidecar.samples,
        waits_measured=int(used.stops.sum()) if used else 0,
        window_samples=count,
        window_samples_near_estimate=near,
        clock=_describe_clock(host.clock),
        threads=sidecar.document.threads,
        record_cost_ns=sidecar.processes.cost_ns if sidecar.processes else None,
        cpu_pressure=_measure_pressure(host.cpu_pressure, sidecar.document.cpu_pressure_at_end),
    )


def _measure_pressure(first: _Pressure | None, last: _Pressure | None) -> float | None:
    """Return the share of the time between both in which some thread waited for a processor; None if not known."""
    if first is None or last is None:
        return None
    waited, whole = 1000 * (last.waited_us - first.waited_us), last.time_ns - first.time_ns
    return round(min(waited / whole, 1.0), 4) if whole > 0 <= waited else None


def _describe_clock(clock: _Clock | None) -> HostClock | None:
    """Describe the clock by chrony if it runs, otherwise by the kernel."""
    if clock is None:
        return None
    known = clock.chrony or clock
    error = known.max_error_ns if known.synchronised and 0 <= known.max_error_ns <= _MOST_ERROR_NS else None
    return HostClock("chrony" if clock.chrony else "kernel", known.synchronised, error)


def add_clock_errors(first: Sidecar, second: Sidecar) -> int | None:
    """Add up by how much two hosts' clocks were wrong at most; None unless both are known and synchronised."""
    clocks = (_describe_clock(one.document.host.clock) for one in (first, second))
    errors = [clock.max_error_ns for clock in clocks if clock and clock.max_error_ns is not None]
    return sum(errors) if len(errors) == 2 else None


def have_one_clock(first: Sidecar, second: Sidecar) -> bool:
    """Say whether two recordings were made on one host, so that their times are from one clock."""
    boots = first.document.host.boot, second.document.host.boot
    return bool(boots[0]) and boots[0] == boots[1]


# Settings in findings

SYSCTL = re.compile(r"\b(net\.(?:ipv4|core)\.\w+)")
"""Settings that remedies name."""
_HOST = re.compile(r"\b(?:client|server) ([0-9a-fA-F.:\[\]]+[0-9a-fA-F\]])")
_SIDE = re.compile(r"\bon the host of the (client|server)\b")
_ROUTE = re.compile(r"\bip route change \S+ initcwnd\b")
_NOT_SET = "10, the kernel's default: no route sets it"


def add_present_settings(finding: Finding, about: About, tables: Tables, sidecar: Sidecar) -> Finding | Skipped:
    """Add the present values on the recording host of the settings that the remedies name.

    A finding is skipped when the host has switched off what it requires.
    """
    remedies = tuple(_add_value(remedy, finding, tables, sidecar) for remedy in finding.remedies)
    needs = about.requires
    if needs and any(remedy.present == "0" and needs.sysctl in remedy.knob for remedy in remedies):
        but = f"but on their host {needs.sysctl} is 0 ({sidecar.file})"
        return Skipped(finding.id, f"{needs.pattern}, {but}: the cause is another one")
    return replace(finding, remedies=remedies)


def _add_value(remedy: Remedy, finding: Finding, tables: Tables, sidecar: Sidecar) -> Remedy:
    if not _is_here(remedy, finding, tables, sidecar):
        return remedy
    name = SYSCTL.search(remedy.knob)
    value = sidecar.setting(name[1]) if name else None
    if _ROUTE.search(remedy.knob) and sidecar.document.host.routes:
        found = [m for route in sidecar.document.host.routes for m in metrics(route)]
        value = None if any("initcwnd" in m for m in found) else _NOT_SET
    return remedy if value is None else replace(remedy, present=value)


def _is_here(remedy: Remedy, finding: Finding, tables: Tables, sidecar: Sidecar) -> bool:
    """Check whether the setting belongs to the recording host alone."""
    named = {address.strip("[]") for address in _HOST.findall(remedy.note)}
    for side in _SIDE.findall(remedy.note):
        c = tables.connections
        column = c.client_ip if side == DIRECTIONS[0] else c.server_ip
        named |= {tables.addresses[int(column[row])] for row in finding.scope.connections}
    return bool(named) and named <= set(sidecar.document.host.addresses)


def metrics(route: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the metrics of a route in the output of `ip -j`."""
    found = route.get("metrics")
    return [m for m in found if isinstance(m, dict)] if isinstance(found, list) else []
