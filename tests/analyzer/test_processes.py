"""Process records joined with packets: cases whose packets look alike are told apart; a record in doubt is not used."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support import RECORDED

from grpcdiag.analyzer.analysis import analyze, of_capture, of_part
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import processor_saturated
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.budget import of_cause, unsplit
from grpcdiag.analyzer.model.finding import Finding, Skipped
from grpcdiag.analyzer.model.recorded import ProcessFacts
from grpcdiag.analyzer.selection.narrow import read
from grpcdiag.analyzer.selection.selection import Selection
from grpcdiag.analyzer.sidecar.processes import join
from grpcdiag.analyzer.sidecar.processes.join import join_record
from grpcdiag.analyzer.sidecar.processes.record import RecordError, read_record
from grpcdiag.analyzer.tables.processes import PARTS, STATES
from grpcdiag.cli.support.sidecar import find_sidecar
from grpcdiag.reports import markdown, terminal
from grpcdiag.reports.attachment.ruled_out import list_ruled_out

FOLDER = RECORDED / "processes"
NAMES = sorted(path.name.removesuffix(".pcap.zst") for path in FOLDER.glob("*.zst"))


def capture(name: str) -> str:
    return str(FOLDER / f"{name}.pcap.zst")


def record(name: str) -> bytes:
    return (FOLDER / f"{name}.pcap.grpcdiag-processes").read_bytes()


def joined(name: str) -> Analysis:
    path = [capture(name)]
    return of_capture(path, decode(path, rpc_rows=False), *find_sidecar(path))


def share(facts: ProcessFacts, *parts: str) -> float:
    return float(sum(getattr(facts, f"{part}_ns") for part in parts) / facts.total_ns)


CAUSES = {
    "cpu-quota": ("cpu-quota", "client", ["throttled"], 0.5),
    "lock-contention": (None, "client", ["lock"], 0.5),
    "one-connection": ("shared-connection", "client", ["running"], 0.5),
    "own-connections": (None, "client", ["running", "wake_up"], 0.45),
    "processor-saturated": ("processor-saturated", "client", ["other_processes"], 0.5),
    "slow-pool": ("server-latency", "server", ["timer"], 0.8),
}


@pytest.mark.parametrize("name", NAMES)
def test_look_alikes_are_told_apart(name: str) -> None:
    analysis = joined(name)
    verdict, side, parts, least = CAUSES[name]
    assert analysis.verdict.finding == verdict
    facts = next(one for one in analysis.processes if one.side == side)
    assert facts.name == ("python" if name == "lock-contention" else "load")
    assert share(facts, *parts) > least


@pytest.mark.parametrize("name", NAMES)
def test_budgets_add_up_to_what_the_packets_say(name: str) -> None:
    plain, better = analyze([capture(name)]), joined(name)
    recorded = "server" if name == "slow-pool" else "client"
    assert any("." in cause for cause in better.budget) == (recorded in plain.budget)
    assert unsplit(better.budget) == dict(plain.budget)
    assert sum(better.budget.values()) == sum(plain.budget.values())
    for before, after in zip(plain.connections, better.connections, strict=True):
        assert unsplit(after.budget) == dict(before.budget)
    for old, new in zip(plain.methods, better.methods, strict=True):
        assert unsplit(new.budget) == dict(old.budget)
    assert not plain.processes


@pytest.mark.parametrize("name", NAMES)
def test_every_interval_is_divided(name: str) -> None:
    path = [capture(name)]
    tables = decode(path, rpc_rows=False)
    found = join_record(path, tables, read_record(record(name)))
    acts = found.acts
    assert (acts.parts >= 0).all()
    assert (acts.parts.sum(axis=1) == acts.duration_ns).all()
    known = acts.process > 0
    assert known.mean() > 0.95, "a packet's thread is known by the bytes of its socket"
    own = (acts.idle == 0) & (acts.direction == (name == "slow-pool"))
    cause = "server" if name == "slow-pool" else "client"
    assert int(acts.duration_ns[own].sum()) == of_cause(analyze(path).budget, cause)


def blocks(content: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 0
    while at < len(content):
        letter, length = struct.unpack_from("<cI", content, at)
        found.append((letter, content[at + 5 : at + 5 + length]))
        at += 5 + length
    return found


def together(parts: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(letter + struct.pack("<I", len(content)) + content for letter, content in parts)


def changed(place: int, **values: object) -> bytes:
    """A record with a changed header (0) or footer (-1)."""
    parts = blocks(record("one-connection"))
    parts[place] = (b"J", json.dumps(json.loads(parts[place][1]) | values).encode())
    return together(parts)


def test_a_process_in_a_cgroup_of_its_own_accuses_no_others() -> None:
    """Its quota is not known, and a thread that is throttled looks like one that waits for others."""
    path, parts = capture("processor-saturated"), blocks(record("processor-saturated"))
    parts[-1] = (b"J", json.dumps(json.loads(parts[-1][1]) | {"elsewhere": True}).encode())
    tables = decode([path], rpc_rows=False)
    for content, told in ((record("processor-saturated"), Finding), (together(parts), Skipped)):
        found = replace(tables, processes=join_record([path], tables, read_record(content)))
        assert [type(one) for one in processor_saturated.detect(found, processor_saturated.Limits())] == [told]


def test_reports_show_the_parts() -> None:
    analysis = joined("processor-saturated")
    shown = terminal.render(analysis, width=120)
    assert re.search(r"client load \(\d+\): 2\d\d intervals, \d+ ms: other processes 69%, ", shown)
    assert "client.other_processes" in shown
    assert "| `client.other_processes` |" in markdown.render(analysis, version="0")


@pytest.mark.parametrize("finding_id", ["shared-connection", "client-idle-gap"])
def test_findings_about_idle_intervals_say_what_the_clients_threads_did(finding_id: str) -> None:
    recorded, plain = (
        next(one for one in analysis.findings if one.id == finding_id)
        for analysis in (joined("one-connection"), analyze([capture("one-connection")]))
    )
    assert recorded.confidence == plain.confidence, "more connections may be slower all the same"
    assert (
        "The scheduler recorded the client's threads. Of the 43.7 ms before they sent: work 26.7 ms, "
        "waits for a processor 10.7 ms" in recorded.explanation
    )
    assert "scheduler" not in plain.explanation
    assert recorded.metrics["thread_running_ns"] > recorded.metrics["client_held_ns"] / 2


def test_only_a_record_rules_out_what_it_shows() -> None:
    of = {"processor-saturated", "cpu-quota"}
    assert not {name for name, *_ in list_ruled_out(analyze([capture("own-connections")]))} & of
    figures = {name: figure for name, _, figure in list_ruled_out(joined("own-connections"))}
    assert of <= figures.keys()
    assert re.fullmatch(r"0\.0% of the \d+ ms in which recorded threads had to act", figures["cpu-quota"])


FORMATS = json.loads(blocks(record("one-connection"))[0][1])["formats"]
DOUBTS = {
    "cut": (record("one-connection")[:-100], "it is cut"),
    "full": (changed(-1, cut=True), "it is cut"),
    "earlier": (changed(-1, quotas=None), "an earlier version wrote it"),
    "lost": (changed(-1, lost_events=7), "it lacks 7 events"),
    "step": (changed(-1, offset_ns=0), "clock and the capture's moved"),
    "kind": (changed(0, schema="other/1"), "it is not a record of"),
    "threads": (changed(0, tasks=[[2**40, 1, "x"]]), "does not describe a recording"),
    "throttled": (changed(-1, quotas=[{"process": 1, "throttled": [[2**70, 2**70]]}]), "does not describe a recording"),
    "offset": (changed(0, offset_ns=2**63), "does not describe a recording"),
    "types": (changed(0, offset_ns="x"), "does not describe a recording"),
    "formats": (changed(0, formats=["name: nothing"]), "does not describe sched_switch, which is needed"),
    "numbers": (changed(0, formats=[text.replace("ID: ", "ID: 1") for text in FORMATS]), "it has no events"),
    "switches": (
        changed(0, formats=[text for text in FORMATS if "sched_switch" not in text]),
        "describe sched_switch,",
    ),
    "states": (
        changed(0, formats=[text.replace("prev_state", "state") for text in FORMATS]),
        "sched_switch.prev_state,",
    ),
    "threads made": (changed(0, formats=[text.replace("task_newtask", "x") for text in FORMATS]), "task_newtask,"),
    "damage": (together([(k, c[:9] if k == b"P" else c) for k, c in blocks(record("slow-pool"))]), "pages are damaged"),
    "nothing": (b"", "it is not a record of"),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_record_in_doubt_is_refused_and_the_packets_answer(doubt: str, tmp_path: Path) -> None:
    content, why = DOUBTS[doubt]
    with pytest.raises(RecordError, match=why):
        read_record(content)
    for path in FOLDER.glob("one-connection*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "one-connection.pcap.grpcdiag-processes").write_bytes(content)
    path = [str(tmp_path / "one-connection.pcap.zst")]
    analysis = of_capture(path, decode(path, rpc_rows=False), *find_sidecar(path))
    plain = analyze(path)
    assert (analysis.budget, analysis.findings, analysis.processes) == (plain.budget, plain.findings, ())
    (note,) = set(analysis.quality.warnings) - set(plain.quality.warnings)
    assert why in note


@pytest.mark.parametrize("size", [0, 1, 5, 64, 60_000])
@pytest.mark.parametrize("what", ["size", "offset"])
def test_formats_of_other_sizes_make_a_note(what: str, size: int, tmp_path: Path) -> None:
    header = json.loads(blocks(record("one-connection"))[0][1])
    formats = [re.sub(rf"\b{what}:\d+;", f"{what}:{size};", text) for text in header["formats"]]
    for path in FOLDER.glob("one-connection*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "one-connection.pcap.grpcdiag-processes").write_bytes(changed(0, formats=formats))
    path = [str(tmp_path / "one-connection.pcap.zst")]
    analysis = of_capture(path, decode(path, rpc_rows=False), *find_sidecar(path))
    assert not analysis.processes
    assert any("is not used" in note for note in analysis.quality.warnings)


def selected(name: str, chosen: Selection) -> Analysis:
    path = [capture(name)]
    return of_part(path, read(path, chosen), chosen, *find_sidecar(path))


@pytest.mark.parametrize("name", ["cpu-quota", "slow-pool"])
def test_a_selection_of_everything_has_the_same_threads(name: str) -> None:
    whole, part = joined(name), selected(name, Selection(method="*"))
    assert (part.processes, part.budget, part.verdict) == (whole.processes, whole.budget, whole.verdict)


def test_a_selection_has_the_threads_of_its_rpcs() -> None:
    """Of a connection some of whose RPCs are selected, the time between RPCs is not judged."""
    whole, part = joined("slow-pool"), selected("slow-pool", Selection(end=100_000_000))
    plain = of_part([], read([capture("slow-pool")], chosen := Selection(end=100_000_000)), chosen)
    assert unsplit(part.budget) == dict(plain.budget)
    assert part.narrowed
    assert part.narrowed.connections_in_part
    (facts,) = part.processes
    assert (facts.side, facts.idle_intervals) == ("server", 0)
    assert 0 < facts.total_ns == of_cause(part.budget, "server") < whole.processes[0].total_ns
    assert not part.quality.warnings


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_what_the_parts_add_up(name: str) -> None:
    path = [capture(name)]
    found = join_record(path, decode(path, rpc_rows=False), read_record(record(name)))
    assert found.follow is not None
    rows = np.arange(0, len(found.acts.process), 7)[::-1]
    steps = found.follow(rows)
    lengths = steps.end_time_ns - steps.start_time_ns
    assert (lengths > 0).all()
    for place, row in enumerate(rows.tolist()):
        mine = steps.interval == place
        sums = np.bincount(steps.part[mine], weights=lengths[mine], minlength=len(PARTS))
        assert sums.tolist() == found.acts.parts[row].tolist()
        start = int(found.acts.start_time_ns[row])
        assert steps.start_time_ns[mine][0] == start
        assert (steps.start_time_ns[mine][1:] == steps.end_time_ns[mine][:-1]).all()


def test_spans_of_a_thread_follow_each_other() -> None:
    path = [capture("cpu-quota")]
    found = join_record(path, decode(path, rpc_rows=False), read_record(record("cpu-quota")))
    assert found.list_spans is not None
    every, few = found.list_spans(1 << 30), found.list_spans(100)
    assert every.shortest_ns == 0
    same = every.thread[1:] == every.thread[:-1]
    assert (every.end_time_ns[:-1][same] == every.start_time_ns[1:][same]).all()
    long = every.end_time_ns - every.start_time_ns >= few.shortest_ns
    assert few.start_time_ns.tolist() == every.start_time_ns[long].tolist()
    assert 50 < len(few.thread) <= 100
    assert {STATES[state] for state in every.state.tolist()} >= {"running", "ready", "throttled", "waits for packets"}
    assert {every.threads[thread][1] for thread in every.thread.tolist()} >= {"load"}


def quota(process: int, start: int, end: int) -> dict[str, Any]:
    return {"process": process, "throttled": [[start, end]], "processors": 0.5}


def test_a_quota_counts_for_the_process_that_has_it() -> None:
    """The recorded server of another capture, as if its cgroup, or that of another process, had been throttled."""
    path = [capture("cpu-quota")]
    tables, footer = decode(path, rpc_rows=False), json.loads(blocks(record("cpu-quota"))[-1][1])
    (own,) = footer["quotas"]
    parts = []
    for quotas in ([own], [own | {"process": 1}], [quota(1, *own["throttled"][0]), own]):
        content = together(
            [*blocks(record("cpu-quota"))[:-1], (b"J", json.dumps(footer | {"quotas": quotas}).encode())]
        )
        found = join_record(path, tables, read_record(content))
        parts.append(int(found.acts.parts[:, PARTS.index("throttled")].sum()))
        assert {one.processors for one in found.quotas.values()} == ({0.2} if own in quotas else set())
    assert parts[0] == parts[2] > 200_000_000
    assert parts[1] == 0


def test_threads_of_a_proxy_are_not_used() -> None:
    """They are the server of one leg and the client of another."""
    path = [str(RECORDED / "wild" / "hop-backend-slow-a.pcap.zst")]
    some = join_record([capture("slow-pool")], decode([capture("slow-pool")]), read_record(record("slow-pool")))
    plain, better = (of_capture(path, replace(decode(path), processes=known)) for known in (None, some))
    assert (better.budget, better.findings, better.processes) == (plain.budget, plain.findings, ())
    (note,) = set(better.quality.warnings) - set(plain.quality.warnings)
    assert note.startswith("threads are not used: calls go through a proxy")


def test_another_captures_record_is_not_used() -> None:
    path = [capture("one-connection")]
    tables = decode(path, rpc_rows=False)
    with pytest.raises(RecordError, match="opened none of the connections"):
        join_record(path, tables, read_record(record("own-connections")))
    stepped = replace(tables, capture={**tables.capture, "clock_steps": [(3, 5)]})
    with pytest.raises(RecordError, match="clock was set"):
        join_record(path, stepped, read_record(record("one-connection")))


def test_a_capture_with_too_many_intervals_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    path, read_wire = [capture("one-connection")], join._read_wire
    tables = decode(path, rpc_rows=False)
    monkeypatch.setattr(join, "_read_wire", lambda *how: replace(read_wire(*how), acts_left_out=7))
    with pytest.raises(RecordError, match="7 intervals more than are joined"):
        join_record(path, tables, read_record(record("one-connection")))


@given(st.integers(0, 60_000), st.binary(max_size=40))
def test_damage_raises_nothing_else(place: int, bytes_there: bytes) -> None:
    content = bytearray(record("slow-pool"))
    content[place : place + len(bytes_there)] = bytes_there
    try:
        found = read_record(bytes(content))
    except RecordError:
        return
    some = np.array([0, 1 << 60], dtype=np.int64)
    columns = (some, some + 9, some * 0, some.astype(np.uint64), some)
    _, parts = found.events.divide(*columns, [time for one in found.quotas for time in one.throttled])
    assert parts.shape == (2, len(PARTS))
    assert (parts.sum(axis=1) == 9).all()
