"""`synchronised-stall`: everything in flight stops at once; never one slow handler, an idle client, loss or a queue."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from detecting import found, the_finding
from judging import changed, must, played, repeated, told
from msgspec.structs import replace
from process_tables import as_recorded
from support import recorded, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import synchronised_stall as detector
from grpcdiag.analyzer.facts import software_at
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.scenes_pauses import pausing_client, pausing_server
from grpcdiag.fixtures.synthetic.words import MS
from grpcdiag.reports.shared.sentences import describe_cost

FIRES_ON = ["wild/cpu-client", "wild/gc-client", "wild/gc-server"]
QUIET_ON = [
    "wild/tail-calls",
    "wild/grpcio-three-slow",
    "wild/lb-slow-backend",
    "wild/ghz-lo-c50",
    "rtt205-go-16000",
    "too-many-pings",
    "wild/window-deadlock-others",
]

SERVER, CLIENT = "synchronised-stall-fires-server", "synchronised-stall-fires-client"


def test_a_stopped_server_is_named_and_its_tail_is_a_part_of_it() -> None:
    """It was stopped five times for 300 ms, every 2 s, with six calls in flight."""
    files = [recorded("wild/gc-server.pcap.zst")]
    analysis = analyze(files)
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence, finding.metrics["stalls"]) == ("warning", "high", 5)
    assert finding.metrics["median_stall_ns"] == pytest.approx(300 * MS, rel=0.1)  # less the ACK of what came before
    assert finding.metrics["rpcs_waiting"] == 30
    assert finding.lost_ns == pytest.approx(30 * 300 * MS, rel=0.1)
    assert "server 10.77.188.2 was unresponsive 5 times" in finding.title
    assert "the silences come every 2.01 s" in finding.title
    assert analysis.verdict.finding == detector.ID
    tail = next(f for f in analysis.findings if f.id == "server-latency")
    assert (tail.part_of, tail.lost_ns) == (detector.ID, None)


def test_a_stopped_client_is_named_by_its_late_pings() -> None:
    files = [recorded("wild/gc-client.pcap.zst")]
    finding = the_finding(detector, files)
    assert (finding.severity, finding.lost_ns, finding.metrics["late_pings"]) == ("warning", None, 3)
    assert finding.metrics["median_stall_ns"] == pytest.approx(300 * MS, rel=0.06)
    assert finding.title.startswith("client 10.77.232.1 was unresponsive 3 times")
    assert "before their first packet" in finding.explanation


def test_a_client_without_cpu_time_is_named_and_not_its_server() -> None:
    """A quota of 3.5 ms per 100 ms."""
    finding = the_finding(detector, [recorded("wild/cpu-client.pcap.zst")])
    assert finding.title.startswith("client 10.77.83.1 was unresponsive")
    assert int(finding.metrics["longest_stall_ns"]) < 100 * MS


def test_synthetic_captures() -> None:
    server = the_finding(detector, [synthetic(SERVER).file])
    assert (server.metrics["stalls"], server.metrics["rpcs_waiting"], server.confidence) == (3, 9, "medium")
    assert "A lock, a pool or a service that all calls need would look the same." in server.explanation
    client = the_finding(detector, [synthetic(CLIENT).file])
    assert (client.metrics["stalls"], client.metrics["late_pings"], client.confidence) == (3, 3, "high")


@pytest.mark.parametrize(
    ("limits", "fires"),
    [
        ({"rpcs": 9}, True),
        ({"rpcs": 10}, False),
        ({"late_rpcs_ns": 299 * MS}, True),
        ({"late_rpcs_ns": 304 * MS}, False),
        ({"factor": 11.0}, True),  # the mean is 2 ms and the part of three silences of 300 ms in forty rounds: 25 ms
        ({"factor": 14.0}, False),
        ({"unary_messages": 1.9}, False),
        ({"at_once": 0.01}, True),  # the answers follow each other at once
        ({"of_silence": 0.0001}, True),
        ({"of_silence": 0.00001}, False),
        ({"apart_ns": 1_990_000}, True),
        ({"apart_ns": 2 * MS}, False),
    ],
)
def test_each_limit_for_rpcs(limits: dict[str, Any], fires: bool) -> None:
    assert (found(detector, [synthetic(SERVER).file], **limits) is not None) is fires


@pytest.mark.parametrize(
    ("limits", "fires"),
    [
        ({}, True),
        ({"alone_ns": 785 * MS}, True),
        ({"alone_ns": 786 * MS}, False),
        ({"rpcs": 8}, True),
        ({"rpcs": 9}, False),  # as many waited
        ({"late_ping_ns": 786 * MS}, False),
    ],
)
def test_one_late_ping_is_enough_when_several_rpcs_waited_for_long(limits: dict[str, Any], fires: bool) -> None:
    assert (found(detector, [recorded("wild/grpcio-stopped-once.pcap.zst")], **limits) is not None) is fires


@pytest.mark.parametrize("name", ["grpc-js-stopped-three", "grpcio-stopped-three"])
@pytest.mark.parametrize(
    ("limits", "fires"),
    [({}, True), ({"few_rpcs": 4}, False), ({"long_ns": 1_300 * MS}, False), ({"factor": 700.0}, False)],
)
def test_a_second_is_enough_for_three_waiting_rpcs(name: str, limits: dict[str, Any], fires: bool) -> None:
    """TCP acknowledged at once; the event loop was blocked, or the process stopped."""
    finding = found(detector, [recorded(f"wild/{name}.pcap.zst")], **limits)
    assert (finding is not None) is fires
    if finding:
        assert (finding.metrics["stalls"], finding.metrics["rpcs_waiting"], finding.confidence) == (1, 3, "medium")
        assert "Its TCP acknowledged all bytes in 1 silence" in finding.explanation
        assert finding.remedies[0].knob.startswith("loop.set_debug(True)") is (name == "grpcio-stopped-three")


def test_three_calls_that_one_event_answers_are_long_polls() -> None:
    tables = decode([recorded("wild/grpcio-stopped-three.pcap.zst")])
    waited = tables.rpcs.duration_ns > 1_000 * MS
    assert waited.sum() == 3
    polls = tables.rpcs.method.copy()
    polls[waited] = polls.max() + 1
    assert told(detector, changed(tables, "rpcs", method=polls)) is None
    unacknowledged = np.full(len(tables.stalls.connection), -1)
    assert told(detector, changed(tables, "stalls", acked_time_ns=unacknowledged)) is None


@pytest.mark.parametrize(
    ("agent", "first", "collector"),
    [
        ("grpclib/0.4", "loop.set_debug(True)", True),
        ("grpc-node-js/1.14", "perf_hooks.monitorEventLoopDelay()", True),
        ("tonic/0.14", "tokio::task::spawn_blocking", False),
        ("nginx/1.27", "nr_throttled", False),
        ("grpc-go/1.85", "the garbage collector's log", True),
        ("somebody/1", "the garbage collector's log", True),
    ],
)
def test_what_to_look_at_first_depends_on_the_software(agent: str, first: str, collector: bool) -> None:
    tables = decode([recorded("wild/gc-client.pcap.zst")])
    named = replace(tables, agents=(*tables.agents, agent))
    connections = len(tables.connections.rpcs)
    named = changed(named, "connections", client_agent=np.full(connections, len(tables.agents)))
    knobs = [remedy.knob for remedy in must(detector, named).remedies]
    assert knobs[0].startswith(first)
    assert any("garbage" in knob for knob in knobs) is collector


def test_the_time_of_a_client_that_stops_is_its_cost() -> None:
    finding = must(detector, decode([recorded("wild/gc-client.pcap.zst")]))
    assert describe_cost(finding) == "silent for 887 ms"


@pytest.mark.parametrize(
    ("limits", "fires"),
    [
        ({"pings": 3}, True),
        ({"pings": 4}, False),
        ({"late_ping_ns": 29 * MS}, True),
        ({"late_ping_ns": 32 * MS}, False),
    ],
)
def test_each_limit_for_pings(limits: dict[str, Any], fires: bool) -> None:
    assert (found(detector, [synthetic(CLIENT).file], **limits) is not None) is fires


@pytest.mark.parametrize(("stall_ms", "fires"), [(22, True), (17, False)])
def test_a_ping_is_late_after_20_ms(tmp_path: Path, stall_ms: int, fires: bool) -> None:
    assert (told(detector, played(pausing_client(stall_ms * MS, 3), tmp_path)) is not None) is fires


@pytest.mark.parametrize(("stall_ms", "fires"), [(52, True), (44, False)])
def test_rpcs_wait_for_50_ms(tmp_path: Path, stall_ms: int, fires: bool) -> None:
    tables = played(pausing_server(stall_ms * MS), tmp_path)
    assert (told(detector, tables) is not None) is fires


@pytest.mark.parametrize(
    ("requests_ms", "answers_ms", "fires"), [(6, 0, True), (6, 3, True), (6, 6, False), (0, 0, False)]
)
def test_calls_that_need_long_are_answered_as_far_apart_as_they_began(
    tmp_path: Path, requests_ms: int, answers_ms: int, fires: bool
) -> None:
    """Of calls that began at one moment nothing can be told."""
    conversation = pausing_server(300 * MS, requests_ns=requests_ms * MS, answers_ns=answers_ms * MS)
    assert (told(detector, played(conversation, tmp_path), at_once=1.0) is not None) is fires


@pytest.mark.parametrize(
    ("limits", "fires"),
    [
        ({}, False),
        ({"steady_pings": 17}, False),
        ({"steady_pings": 18}, True),
        ({"steady_share": 0.85}, False),
        ({"steady_share": 0.86}, True),
        ({"steady": 1.2}, False),
        ({"steady": 1.1}, True),
    ],
)
def test_pings_that_a_relay_delays_alike_prove_no_pause(limits: dict[str, Any], fires: bool) -> None:
    """17 of 20 acknowledgements came 21.1 ms to 23.4 ms late: socat held the PINGs for a delayed ACK."""
    assert (found(detector, [recorded("wild/socat-nagle.pcap.zst")], **limits) is not None) is fires


def test_what_is_not_answered_before_the_next_silence_shows_no_pause() -> None:
    tables = decode([synthetic(SERVER).file])
    for left, fires in (([0, 0, 1], True), ([0, 1, 1], False)):
        assert (told(detector, changed(tables, "stalls", unanswered=left)) is not None) is fires
    assert told(detector, changed(tables, "stalls", answers_ns=[-1] * 3)) is None


def test_late_pings_do_not_make_pauses_of_calls_that_need_long() -> None:
    """Two of three silences have a late PING, and in the third the calls are answered as far apart as they began."""
    tables = decode([synthetic(SERVER).file])
    stalls = tables.stalls
    pings = np.array([1, 1, 0]) * stalls.resumed_at_packet
    long = changed(tables, "stalls", ping_packet=pings, ping_time_ns=stalls.start_time_ns, answers_ns=[10**9] * 3)
    acked = changed(long, "directions", ping_acks=[0, 2])
    found = must(detector, acked)
    assert (found.metrics["stalls"], found.metrics["rpcs_waiting"], found.lost_ns) == (2, 0, None)
    assert told(detector, long) is None, "it acknowledges no PING at all"


def test_without_a_sign_of_the_hosts_tcp_the_path_may_be_the_cause() -> None:
    tables = decode([synthetic(SERVER).file])
    silent = changed(tables, "stalls", acked_time_ns=np.full_like(tables.stalls.acked_time_ns, -1))
    assert told(detector, silent) is None
    there = changed(silent, "connections", near_server_rtt_ns=[200_000])
    assert told(detector, there) is not None


def test_c_core_clients_read_no_pings_while_no_call_is_open() -> None:
    tables = decode([synthetic(CLIENT).file])
    assert told(detector, tables) is not None
    core = changed(tables, "connections", client_agent=[len(tables.agents)])
    assert told(detector, replace(core, agents=(*tables.agents, "grpc-c++/1.51.1"))) is None


def test_only_a_late_ping_proves_a_pause() -> None:
    tables = decode([synthetic(SERVER).file])
    unproved = must(detector, tables)
    assert "unresponsive 3" not in unproved.title + unproved.verdict
    assert "with everything in flight" in unproved.verdict
    stalls = tables.stalls
    late = changed(tables, "stalls", ping_packet=stalls.resumed_at_packet, ping_time_ns=stalls.start_time_ns)
    late = changed(late, "directions", ping_acks=[0, 3])
    assert must(detector, late).title.startswith("server 10.0.0.2 was unresponsive 3 times")
    alone = must(detector, changed(late, "stalls", waiting=np.ones_like(stalls.waiting)))
    assert "everything in flight" not in alone.verdict
    assert (alone.lost_ns, alone.share, alone.metrics["rpcs_waiting"]) == (None, None, 0)


def test_only_rpcs_that_waited_together_lost_time() -> None:
    """One of the three silences has one RPC and a late PING: its time is not known to be lost."""
    tables = decode([synthetic(SERVER).file])
    stalls, whole = tables.stalls, must(detector, tables)
    mixed = changed(tables, "stalls", waiting=[3, 1, 3], ping_packet=[0, stalls.resumed_at_packet[1], 0])
    mixed = changed(mixed, "directions", ping_acks=[0, 1])
    found = must(detector, mixed)
    assert (found.metrics["stalls"], found.metrics["rpcs_waiting"]) == (3, 6)
    assert found.lost_ns == pytest.approx((whole.lost_ns or 0) * 2 / 3, rel=0.01)


@pytest.mark.parametrize("part", [0.5, 2.0])
def test_no_more_time_is_lost_than_the_server_took(part: float) -> None:
    tables = decode([synthetic(SERVER).file])
    waited = must(detector, tables).lost_ns or 0
    budgets = tables.connection_budgets.copy()
    budgets[:, CAUSES.index("server")] = int(part * waited)
    found = must(detector, replace(tables, connection_budgets=budgets), factor=0.0)
    assert found.lost_ns == int(min(part, 1) * waited)


def test_a_client_is_recognised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    recognise = software_at.recognise_end

    def count(tables: Tables, connection: int, direction: int) -> str | None:
        asked.append((connection, direction))
        return recognise(tables, connection, direction)

    monkeypatch.setattr(software_at, "recognise_end", count)
    assert told(detector, repeated(decode([synthetic(CLIENT).file]), "stalls", 0, 1_000), pings=1, steady_pings=1_001)
    assert asked == [(0, 0)]


def test_one_silence_has_a_length_and_no_median() -> None:
    finding = the_finding(detector, [recorded("wild/grpcio-stopped-once.pcap.zst")])
    assert re.search(r"^Once server \S+ sent nothing for [\d.,]+ ms although its peer waited", finding.explanation)
    several = the_finding(detector, [recorded("wild/gc-server.pcap.zst")])
    assert re.search(r"sent nothing for \d+ ms \(median; longest \d+ ms\) although", several.explanation)


def test_stalls_at_the_same_moment_count_once() -> None:
    tables = decode([synthetic(CLIENT).file])
    stalls = tables.stalls
    same = changed(
        tables,
        "stalls",
        **{name: np.repeat(getattr(stalls, name)[:1], 3) for name in stalls.__struct_fields__},
    )
    assert told(detector, same) is None
    assert must(detector, same, pings=1).metrics["stalls"] == 1


QUOTA = [1_700_000_000_000 + ms for ms in (0, 100, 300, 400, 700, 900, 1_000, 1_300)]


def ended_at(times: list[int]) -> Tables:
    """Make silences that ended at these milliseconds."""
    tables = decode([synthetic(CLIENT).file])
    stalls = tables.stalls
    rows = {name: np.repeat(getattr(stalls, name)[:1], len(times)) for name in stalls.__struct_fields__}
    rows["start_time_ns"] = np.array(times) * MS - rows["duration_ns"]
    return changed(tables, "stalls", **rows)


def test_the_period_of_a_cpu_quota_is_named() -> None:
    def find(times: list[int]) -> Finding:
        return must(detector, ended_at(times), steady_pings=len(times) + 1)

    def ending(times: list[int]) -> str:
        return find(times).title

    quota = QUOTA
    assert "the period of a CPU quota" in ending(quota)
    assert "the period of a CPU quota" in ending(quota[:5])
    assert "CPU quota" not in ending(quota[:4])
    assert "cpu.stat" in find(quota).remedies[0].knob
    assert "garbage" in find(quota[:4]).remedies[0].knob
    assert "CPU quota" not in ending([time + 37 * number for number, time in enumerate(quota)])
    assert "the silences come every 2.00 s" in ending([quota[0] + ms for ms in (0, 2_010, 4_050, 6_000)])
    assert "every" not in ending([quota[0] + ms for ms in (0, 2_000, 4_500, 6_000)])
    for step_ms, words in (
        (400, "CPU quota"),
        (500, "every 500 ms"),
        (2_000, "every 2.00 s"),
        (10_000, "every 10.0"),
    ):
        assert words in ending([quota[0] + step_ms * number for number in range(8)])


def test_recorded_threads_say_whether_a_process_was_paused_or_busy() -> None:
    plain = decode([recorded("wild/gc-server.pcap.zst")])
    before, ran, waited = (
        must(detector, some)
        for some in (plain, as_recorded(plain, {"running": 1.0}), as_recorded(plain, {"throttled": 1.0}))
    )
    assert ran.title.startswith("server 10.77.188.2 was busy 5 times")
    assert ran.verdict.endswith("its threads ran in 100% of that time: profile it.")
    assert "its event loop is blocked. " in ran.explanation and "busy" in ran.title
    assert waited.title == before.title
    assert waited.verdict.endswith("its threads were stopped by a CPU quota in 100% of that time: raise the quota.")
    assert 5 * 300 * MS < int(waited.metrics["thread_throttled_ns"]) < 31 * 400 * MS
    assert "thread_throttled_ns" not in before.metrics


def edges(folder: Path) -> Iterator[Tables]:
    """Shorter silences, near the server without ACKs, and silences in step with a period, and nearly so."""
    yield played(pausing_client(17 * MS, 3), folder)
    yield played(pausing_server(44 * MS), folder)
    tables = decode([synthetic(SERVER).file])
    silent = changed(tables, "stalls", acked_time_ns=np.full_like(tables.stalls.acked_time_ns, -1))
    for near_ns in (100_000, 300_000):
        yield changed(silent, "connections", near_server_rtt_ns=[near_ns])
    nearly = [QUOTA[0] + ms for ms in (0, 2_010, 4_500, 6_000)]
    for times in (QUOTA[:4], nearly, [QUOTA[0] + 400 * number for number in range(8)]):
        yield changed(ended_at(times), "directions", ping_acks=np.full(2, 1_000))
