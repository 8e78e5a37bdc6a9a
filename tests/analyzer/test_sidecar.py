"""What lies beside a capture: settings and windows that are used, and files of other captures that are not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer.analysis import of_tables
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.analyzer.sidecar import read
from grpcdiag.analyzer.tables import Tables
from grpcdiag.reports import analysis_json, terminal

CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
MSS = 1408
MS = 1_000_000


@dataclass(frozen=True)
class Case:
    """A capture in which four messages wait after idle time, and what may lie beside it."""

    tables: Tables

    def document(self, **changes: Any) -> dict[str, Any]:
        capture = self.tables.capture
        said: dict[str, Any] = {
            "schema": "grpcdiag.recording/1",
            "started_time_ns": capture["first_time_ns"] - 100 * MS,
            "ended_time_ns": capture["last_time_ns"] + 100 * MS,
            "packets": {"captured": capture["packets"], "received": 500, "dropped": 0, "dropped_by_interface": 0},
            "capture": {"interface": "t0", "rotate": None},
            "host": {
                "name": "box",
                "kernel": "Linux 6.1 #1 SMP",
                "addresses": ["127.0.0.1", CLIENT],
                "sysctls": {"net.ipv4.tcp_slow_start_after_idle": "1"},
                "routes": [{"dst": "default", "metrics": [{"initcwnd": 32}]}],
            },
        }
        said["host"] |= changes.pop("host", {})
        return said | changes

    def read(self, samples: list[dict[str, Any]] | None = None, **changes: Any) -> read.Sidecar:
        lines = [json.dumps(sample).encode() for sample in samples or []]
        return read.read("x.grpcdiag.json", json.dumps(self.document(**changes)).encode(), lines)

    def analyse(self, *samples: dict[str, Any], **changes: Any) -> Analysis:
        return of_tables(self.tables, self.read(list(samples), **changes))

    def sample(self, time_ns: int, cwnd: int, *, side: int = 0, control: str = "cubic") -> dict[str, Any]:
        """What ss says of the capture's connection, within a millisecond."""
        ends = [self.tables.client(0), self.tables.server(0)]
        socket = {"local": ends[side], "peer": ends[1 - side], "cwnd": cwnd, "mss": MSS, "congestion_control": control}
        return {"from_ns": time_ns, "to_ns": time_ns + MS, "sockets": [socket]}


@pytest.fixture(scope="module")
def case() -> Case:
    return Case(decode([recorded("rtt205-go-16000.pcap")]))


def restart(analysis: Analysis) -> Finding | None:
    return next((f for f in analysis.findings if f.id == "slow-start-after-idle"), None)


def test_remedies_name_the_present_value(case: Case) -> None:
    analysis = case.analyse()
    found = restart(analysis)
    assert found is not None
    values = {remedy.knob: remedy.present for remedy in found.remedies}
    assert values["sysctl -w net.ipv4.tcp_slow_start_after_idle=0"] == "1"
    assert values["none"] is None
    text = terminal.render(analysis)
    assert "tcp_slow_start_after_idle=0 (is 1 here)" in text
    assert "settings of box, Linux 6.1 (x.grpcdiag.json)" in text
    document = json.loads(analysis_json.render(analysis))
    jsonschema.Draft202012Validator(analysis_json.schema()).validate(document)
    assert document["recording"]["file"] == "x.grpcdiag.json"


def test_an_initial_window_that_no_route_sets_is_the_kernels(case: Case) -> None:
    found = restart(case.analyse(host={"routes": [{"dst": "default", "metrics": []}]}))
    assert found is not None
    assert [r.present for r in found.remedies if "initcwnd" in r.knob] == ["10, the kernel's default: no route sets it"]
    found = restart(case.analyse())  # one route sets it, and which one is used is not known
    assert found is not None
    assert [r.present for r in found.remedies if "initcwnd" in r.knob] == [None]


def test_settings_of_the_other_host_are_not_named(case: Case) -> None:
    analysis = case.analyse(host={"addresses": [SERVER]})
    found = restart(analysis)
    assert found is not None and analysis.recording is not None
    assert {remedy.present for remedy in found.remedies} == {None}


def test_a_setting_that_changed_meanwhile_is_not_named(case: Case) -> None:
    found = restart(case.analyse(sysctls_at_end={"net.ipv4.tcp_slow_start_after_idle": "0"}))
    assert found is not None
    assert found.remedies[0].present is None


def test_a_restart_that_is_switched_off_is_none(case: Case) -> None:
    analysis = case.analyse(host={"sysctls": {"net.ipv4.tcp_slow_start_after_idle": "0"}})
    assert restart(analysis) is None
    assert [s.id for s in analysis.skipped] == ["slow-start-after-idle"]
    assert "is 0 (x.grpcdiag.json)" in analysis.skipped[0].reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"host": {"addresses": ["192.0.2.1"]}}, "no connection ends at the recording host, box"),
        ({"host": {"addresses": []}}, "no connection ends at"),
        ({"packets": {"captured": 5}}, "the capture has more packets than its recording (5)"),
        ({"started_time_ns": 1 << 62}, "the capture began before its recording"),
        ({"ended_time_ns": 5}, "the capture continued after its recording"),
    ],
)
def test_a_file_of_another_capture_is_not_used(case: Case, changes: dict[str, Any], reason: str) -> None:
    analysis = case.analyse(case.sample(0, 10), **changes)
    assert analysis.recording is None
    assert analysis.findings == of_tables(case.tables).findings
    assert [w for w in analysis.quality.warnings if reason in w and "x.grpcdiag.json is not used" in w]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"schema": "grpcdiag.recording/1", "started_time_ns": "soon", "host": {}}',
        b'{"schema": "grpcdiag.recording/2", "started_time_ns": 1, "host": {}}',
        b'{"schema": "grpcdiag.recording/1", "started_time_ns": 1, "host": {"routes": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_description_is_refused(data: bytes) -> None:
    with pytest.raises(read.Mismatch):
        read.read("x", data)


def test_a_recording_that_was_killed_is_used(case: Case) -> None:
    assert case.analyse(ended_time_ns=None, packets=None).recording is not None


@pytest.mark.parametrize(
    ("waited_us", "whole_ns", "share"),
    [(500, 1_000_000, 0.5), (499, 1_000_000, 0.499), (1_001, 1_000_000, 1.0), (-1, 1_000_000, None), (1, 0, None)],
)
def test_a_host_without_free_processors_is_told(case: Case, waited_us: int, whole_ns: int, share: float | None) -> None:
    first = {"time_ns": 7, "waited_us": 9}
    last = {"time_ns": 7 + whole_ns, "waited_us": 9 + waited_us}
    analysis = case.analyse(host={"cpu_pressure": first}, cpu_pressure_at_end=last)
    assert analysis.recording is not None
    assert analysis.recording.cpu_pressure == share
    told = [note for note in analysis.quality.warnings if "(PSI)" in note]
    assert len(told) == (share is not None and share >= 0.5)
    assert all(note.startswith(f"on box some thread waited for a processor in {share:.0%} of the") for note in told)


@pytest.mark.parametrize(
    ("ran", "ready", "throttled", "told"),
    [
        (100, 999, 0, None),
        (100, 1_000, 0, "in 10.0 s the command's threads ran for 100 ms and waited 1.00 s for a processor (schedstat)"),
        (1, 999, 0, None),
        (5_000, 0, 999, None),
        (
            5_000,
            90_000,
            1_000,
            "a CPU quota stopped threads of the command's cgroup for 1.00 s in 10.0 s, added up over "
            "processors (cpu.stat)",
        ),
    ],
)
def test_threads_that_had_no_processor_are_told(
    case: Case, ran: int, ready: int, throttled: int, told: str | None
) -> None:
    times = {"elapsed_ns": 10_000 * MS, "ran_ns": ran * MS, "ready_ns": ready * MS, "throttled_ns": throttled * MS}
    analysis = case.analyse(threads=times)
    found = [note for note in analysis.quality.warnings if "threads" in note]
    record = "the scheduler's record (capture as root) tells which RPCs waited"
    assert found == ([f"{told}: {record}"] if told else [])
    assert analysis.recording is not None and analysis.recording.threads is not None
    assert analysis.recording.threads.ready_ns == ready * MS


@pytest.mark.parametrize(("processors", "told"), [(None, True), (0.2, True), (1.5, False)])
def test_throttled_time_of_several_processors_is_no_longer_time(
    case: Case, processors: float | None, told: bool
) -> None:
    """A tenth of 10 s of one processor, a twentieth of two."""
    times = {
        "elapsed_ns": 10_000 * MS,
        "ran_ns": 0,
        "ready_ns": 0,
        "throttled_ns": 1_000 * MS,
        "processors": processors,
    }
    notes = case.analyse(threads=times).quality.warnings
    assert any("CPU quota" in note for note in notes) == told


def test_an_endless_time_is_refused(case: Case) -> None:
    with pytest.raises(read.Mismatch, match="does not describe a recording"):
        case.read(cpu_pressure_at_end={"time_ns": 10**400, "waited_us": 1})


def test_packets_that_tcpdump_lost_are_the_captures(case: Case) -> None:
    analysis = case.analyse(packets={"captured": 10_000, "dropped": 7, "dropped_by_interface": 1})
    assert analysis.capture.dropped_packets == 8
    assert analysis.quality.warnings[0].startswith("8 packets were dropped while capturing")


def test_windows_of_the_kernel_replace_estimates(case: Case) -> None:
    waits = case.tables.waits
    row = int(np.flatnonzero(waits.idle_before_ns > 900 * MS)[0])
    stop, flight = int(waits.start_time_ns[row]), int(waits.flight_start_time_ns[row])
    samples = [
        case.sample(flight - 700 * MS, 20),
        case.sample(flight - 100 * MS, 22),  # the last one before the flight
        case.sample(stop + 50 * MS, 11),
        case.sample(stop + 90 * MS, 12),
    ]
    better = read.replace_estimates(case.tables, case.read(samples))
    assert better.measured is not None
    assert np.flatnonzero(better.measured.stops).tolist() == [row]
    assert int(better.waits.congestion_window_bytes[row]) == 11 * MSS
    assert int(better.waits.window_before_idle_bytes[row]) == 22 * MSS
    others = np.arange(len(waits.cause)) != row
    assert (better.waits.congestion_window_bytes == waits.congestion_window_bytes)[others].all()
    analysis = case.analyse(*samples)
    found = restart(analysis)
    assert found is not None and analysis.recording is not None
    assert analysis.recording.waits_measured == 1
    assert found.metrics["congestion_windows_measured"] == 1
    assert f"the congestion window was {22 * MSS:,} bytes (reported by its kernel)" in found.explanation


def test_a_window_that_was_no_larger_before_is_no_restart(case: Case) -> None:
    """The kernel knows better than the estimate: without a larger window there is nothing to fall from."""
    flights = set(case.tables.waits.flight_start_time_ns.tolist())
    assert restart(case.analyse(*(case.sample(flight - 100 * MS, 10) for flight in flights))) is None


def test_samples_outside_a_wait_are_not_its(case: Case) -> None:
    waits = case.tables.waits
    stop, until = int(waits.start_time_ns[1]), int(waits.released_time_ns[1])
    for time_ns in (stop - MS, stop, until - MS, until, until + MS):
        sample = case.sample(time_ns, 99)
        better = read.replace_estimates(case.tables, case.read([sample]))
        assert better.measured is not None and not better.measured.stops.any(), time_ns - stop
    other_end = read.replace_estimates(case.tables, case.read([case.sample(stop + MS, 99, side=1)]))
    assert other_end.measured is not None and not other_end.measured.stops.any()


@pytest.mark.parametrize(("cwnd", "near"), [(10, 1), (12, 1), (13, 0), (8, 1), (7, 0)])
def test_estimates_are_compared(case: Case, cwnd: int, near: int) -> None:
    """The estimate at the stop is 10 segments: two more or less are near."""
    waits = case.tables.waits
    row = int(np.flatnonzero(waits.idle_before_ns > 900 * MS)[0])
    time_ns = int(waits.start_time_ns[row]) + MS
    assert int(waits.congestion_window_bytes[row]) == 10 * MSS
    assert read.compare_estimates(case.tables, case.read([case.sample(time_ns, cwnd)])) == (1, near)
    assert read.compare_estimates(case.tables, case.read([case.sample(time_ns, cwnd, control="bbr")])) == (0, 0)


@pytest.mark.parametrize("what", ["lost", "sacked", "retrans"])
def test_windows_while_a_loss_is_repaired_are_not_used(case: Case, what: str) -> None:
    waits = case.tables.waits
    row = int(np.flatnonzero(waits.idle_before_ns > 900 * MS)[0])
    sample = case.sample(int(waits.start_time_ns[row]) + MS, 5)
    sample["sockets"][0][what] = 1
    assert read.compare_estimates(case.tables, case.read([sample])) == (0, 0)
    better = read.replace_estimates(case.tables, case.read([sample]))
    assert better.measured is not None and not better.measured.stops.any()


def test_idle_times_are_compared_once(case: Case) -> None:
    waits = case.tables.waits
    row = int(np.flatnonzero(waits.idle_before_ns > 900 * MS)[0])
    segments = round(int(waits.window_before_idle_bytes[row]) / MSS)
    early = [case.sample(int(waits.flight_start_time_ns[row]) - t * MS, segments) for t in (500, 300, 100)]
    assert read.compare_estimates(case.tables, case.read(early)) == (1, 1)


def test_a_capture_without_waits(case: Case) -> None:
    none = replace(
        case.tables.waits, **{n: getattr(case.tables.waits, n)[:0] for n in type(case.tables.waits).__struct_fields__}
    )
    tables = replace(case.tables, waits=none)
    assert read.compare_estimates(tables, case.read([case.sample(1, 10)])) == (0, 0)
    assert read.replace_estimates(tables, case.read([])).measured is not None


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda c: st.lists(c, max_size=3)))
def test_strange_samples_are_left_out(value: object) -> None:
    row = {"from_ns": value, "to_ns": value, "sockets": [{"local": "a", "peer": "b", "cwnd": value, "mss": value}]}
    text = {"schema": read.SCHEMA, "started_time_ns": 1, "host": {}}
    found = read.read("x", json.dumps(text).encode(), [json.dumps(row).encode(), b"\xff", b"{"])
    assert all(len(w.bytes) == len(w.from_ns) for w in found.windows.values())
