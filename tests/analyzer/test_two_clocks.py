"""Which clocks captures of both ends have: one by a symmetric path, taken as they are, or that of one host."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import recorded, run_here

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.ends import Ends
from grpcdiag.analyzer.sidecar import read
from grpcdiag.analyzer.two_captures import SPLIT_CAUSES, analyze_files, rpc_budgets, vantages
from grpcdiag.fixtures.synthetic.ends import BothEnds
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import CLIENT, SERVER, Link
from grpcdiag.fixtures.synthetic.words import MS, US, S
from grpcdiag.reports import terminal

UP, DOWN = SPLIT_CAUSES.index("network_up"), SPLIT_CAUSES.index("network_down")
RTT, JITTER = 20 * MS, 10 * US
BOOT = "0123456789abcdef"

Sidecars = Callable[[Sequence[str]], tuple[read.Sidecar | None, tuple[str, ...]]]


def record(folder: Path, offset_ns: int) -> list[str]:
    """Both captures of a path of 10 ms each way. Offset and asymmetry look alike: 4 ms are 14 ms up and 6 ms down."""
    conversation = opened(rtt_ns=RTT)
    for _ in range(4):
        conversation.unary("/demo.Echo/Say", request=100, response=100, server_delay_ns=3 * MS)
        conversation.advance(S)
    captured = BothEnds(Link(rtt_ns=RTT), offset_ns=offset_ns).carry(conversation)
    files = []
    for name, packets in (("client", captured.client), ("server", captured.server)):
        path = folder / f"{name}.pcap"
        path.write_bytes(write_pcap(packets, nanoseconds=True))
        files.append(str(path))
    return files


def combine(files: Sequence[str], **how: Any) -> Ends:
    found = analyze_files(files, **how)
    assert found.ends, found.apart
    return found.ends


def test_without_more_the_path_is_assumed_to_be_symmetric(tmp_path: Path) -> None:
    ends = combine(record(tmp_path, 4 * MS))
    assert (ends.symmetry_assumed, ends.clock.source) == (True, "symmetric_path")
    assert (ends.clock.offset_ns, ends.clock.uncertainty_ns) == (4 * MS, 10 * MS)
    assert (ends.up.delay_ns.min, ends.down.delay_ns.min) == (10 * MS, 10 * MS)


def test_synchronised_clocks_are_taken_as_they_are(tmp_path: Path) -> None:
    files = record(tmp_path, 4 * MS)
    ends = combine(files, synchronised=True)
    assert (ends.symmetry_assumed, ends.clock.source) == (False, "synchronised")
    assert (ends.clock.offset_ns, ends.clock.uncertainty_ns, ends.clock.drift_ppb) == (0, 14 * MS, None)
    assert (ends.up.delay_ns.min, ends.down.delay_ns.min) == (14 * MS, 6 * MS)
    for synchronised, up, down in ((True, 14 * MS, 6 * MS), (False, 10 * MS, 10 * MS)):
        found = rpc_budgets(vantages(files), synchronised=synchronised)
        assert found.symmetry_assumed == (not synchronised)
        assert (found.budgets[:, UP].tolist(), found.budgets[:, DOWN].tolist()) == ([up] * 4, [down] * 4)
        assert np.array_equal(found.budgets.sum(axis=1), found.tables.rpcs.duration_ns)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("beyond_ns", "fits"), [(0, True), (JITTER, True), (JITTER + US, False), (S, False)])
def test_clocks_that_cannot_be_equal_are_refused(tmp_path: Path, sign: int, beyond_ns: int, fits: bool) -> None:
    found = analyze_files(record(tmp_path, sign * (RTT // 2 + beyond_ns)), synchronised=True)
    assert (found.ends is not None) == fits
    if not fits:
        assert found.apart and found.apart.reason.endswith("before they were sent: the clocks are not synchronised")


def beside(
    files: Sequence[str], boots: Sequence[str | None], clocks: Sequence[Any] = (None, None), **changes: Any
) -> Sidecars:
    """The sidecars of captures, by the run of the kernel that recorded each, and its clock."""
    known = {}
    for file, boot, clock, host in zip(files, boots, clocks, (CLIENT, SERVER), strict=True):
        capture = decode([file]).capture
        document = {
            "schema": "grpcdiag.recording/1",
            "started_time_ns": capture["first_time_ns"] - MS,
            "host": {"addresses": [host.ip], "boot": boot, "clock": clock},
        }
        known[file] = read.read("x.grpcdiag.json", json.dumps(document | changes).encode())
    return lambda names: (known.get(names[0]), ())


def test_recordings_of_one_host_have_one_clock(tmp_path: Path) -> None:
    files = record(tmp_path, 4 * MS)
    described = beside(files, (BOOT, BOOT))
    ends = combine(files, described=described)
    assert (ends.symmetry_assumed, ends.clock.source) == (False, "same_host")
    assert (ends.up.delay_ns.min, ends.down.delay_ns.min) == (14 * MS, 6 * MS)
    assert not rpc_budgets(vantages(files), described=described).symmetry_assumed


@pytest.mark.parametrize("boots", [(BOOT, BOOT[::-1]), (BOOT, None), (None, None), ("", "")])
def test_recordings_of_other_hosts_do_not(tmp_path: Path, boots: tuple[str | None, ...]) -> None:
    files = record(tmp_path, 4 * MS)
    assert combine(files, described=beside(files, boots)).clock.source == "symmetric_path"


def test_a_sidecar_of_another_capture_says_nothing(tmp_path: Path) -> None:
    files = record(tmp_path, 4 * MS)
    described = beside(files, (BOOT, BOOT), started_time_ns=1 << 62)
    assert combine(files, described=described).clock.source == "symmetric_path"


def test_equal_ids_do_not_outweigh_packets(tmp_path: Path) -> None:
    """Copies of one virtual machine have equal ids, and clocks of their own."""
    files = record(tmp_path, S)
    ends = combine(files, described=beside(files, (BOOT, BOOT)))
    assert (ends.clock.source, ends.clock.offset_ns) == ("symmetric_path", S)


def test_reports_mark_what_depends_on_the_assumption(tmp_path: Path) -> None:
    files = record(tmp_path, 4 * MS)
    assumed, known = (terminal.render(analyze_files(files, synchronised=choice)) for choice in (False, True))
    assert assumed.count("; path assumed symmetric") == 2 and "one-way (if symmetric)" in assumed
    assert "symmetric" not in known and "are taken as equal (--clock synchronised)" in known
    same = terminal.render(analyze_files(files, described=beside(files, (BOOT, BOOT))))
    assert "symmetric" not in same and "because one host recorded both captures" in same


def synchronised_to(error_ns: int, synchronised: bool = True) -> dict[str, Any]:
    return {"synchronised": synchronised, "max_error_ns": error_ns}


@pytest.mark.parametrize(
    ("clocks", "known", "better"),
    [
        ((synchronised_to(MS), synchronised_to(2 * MS)), 3 * MS, True),
        ((synchronised_to(MS), synchronised_to(9 * MS - 1)), 10 * MS - 1, True),
        ((synchronised_to(MS), synchronised_to(9 * MS)), 10 * MS, False),
        ((synchronised_to(MS), synchronised_to(MS, synchronised=False)), None, False),
        ((synchronised_to(MS), None), None, False),
    ],
)
def test_what_both_hosts_knew_of_their_clocks(
    tmp_path: Path, clocks: tuple[Any, Any], known: int | None, better: bool
) -> None:
    """Packets alone leave 10 ms open."""
    files = record(tmp_path, 0)
    found = analyze_files(files, described=beside(files, (None, None), clocks))
    assert found.ends and found.ends.clock.hosts_error_ns == known
    assert ("--clock synchronised uses that" in " ".join(terminal.render(found).split())) == better


def test_commands_have_the_option(tmp_path: Path) -> None:
    files = record(tmp_path, 4 * MS)
    found = json.loads(run_here("analyze", *files, "--clock", "synchronised", "--json").out)["ends"]
    assert (found["clock"]["source"], found["symmetry_assumed"]) == ("synchronised", False)
    note = (
        "grpcdiag: network_up and network_down assume that the fastest packets take equally long both ways (--clock)\n"
    )
    assert run_here("rpcs", *files, "--format", "csv").err == note
    for choice in ("synchronised", "symmetric"):
        assert run_here("rpcs", *files, "--format", "csv", "--clock", choice).err == ""


@pytest.mark.parametrize("command", ["analyze", "rpcs"])
def test_one_capture_has_one_clock(command: str) -> None:
    capture, other = recorded("rtt205-go-16000.pcap"), recorded("impl-go.pcap")
    for files in ([capture], [capture, other]):
        refused = run_here(command, *files, "--clock", "synchronised")
        assert (refused.code, refused.out) == (2, b"")
        assert refused.err.startswith("grpcdiag: --clock is about captures of both ends")


@pytest.mark.parametrize(
    ("clock", "text"),
    [
        (None, None),
        ({"synchronised": True, "max_error_ns": 2_500_000, "chrony": None}, "wrong by at most 2.50 ms (its kernel)"),
        ({"synchronised": False, "max_error_ns": 16_000_000_000, "chrony": None}, "was not synchronised (its kernel)"),
        (
            {"synchronised": True, "max_error_ns": MS, "chrony": {"synchronised": True, "max_error_ns": 40 * US}},
            "synchronised, wrong by at most 40.0 µs (chrony)",
        ),
        (
            {"synchronised": True, "max_error_ns": MS, "chrony": {"synchronised": False, "max_error_ns": 0}},
            "was not synchronised (chrony)",
        ),
    ],
)
def test_the_clock_of_the_recording_host_is_shown(
    tmp_path: Path, clock: dict[str, Any] | None, text: str | None
) -> None:
    (file, _) = record(tmp_path, 0)
    host = {"addresses": [CLIENT.ip], "clock": clock}
    (Path(file + ".grpcdiag.json")).write_text(
        json.dumps({"schema": "grpcdiag.recording/1", "started_time_ns": 0, "host": host})
    )
    report = " ".join(run_here("analyze", file).text.split())
    assert text in report if text else "its clock" not in report
    found = json.loads(run_here("analyze", file, "--json").out)["recording"]["clock"]
    assert (found is None) == (clock is None)
