"""`grpcdiag lab`: what it says, and one case end to end where this machine allows it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import PATIENCE_S, grpcdiag, require_tool, run_here, wait_until

from grpcdiag.analyzer.detectors import DETECTORS
from grpcdiag.capture.tracer import tracefs
from grpcdiag.fixtures.lab import janitor, quota
from grpcdiag.fixtures.lab.cases import CASES, by_name
from grpcdiag.fixtures.lab.cases.case import Case
from grpcdiag.fixtures.lab.cases.look_alikes import LOOK_ALIKES, SUSPECTS
from grpcdiag.fixtures.lab.namespaces import missing
from grpcdiag.fixtures.lab.perform import why_not


def test_alone_it_lists_the_cases() -> None:
    text = run_here("lab").text
    assert all(case.name in text for case in CASES)


def test_an_unknown_case_is_wrong_usage() -> None:
    outcome = run_here("lab", "no-such-case")
    assert outcome.code == 2
    assert "grpcdiag lab lists all" in outcome.err
    assert "did you mean ping-storm?" in run_here("lab", "ping-strom").err
    assert "did you mean grpc-java?" in run_here("lab", "ping-storm", "--implementation", "java").err


def test_each_finding_has_a_case() -> None:
    for detector in DETECTORS:
        assert by_name(detector.id)
    assert by_name("slow-start-after-idle") is by_name("slow-start")
    assert by_name("cpu-quota") is by_name("starved-client")
    assert by_name("processor-saturated") is by_name("crowded-client")
    assert by_name("server-latency") is not by_name("slow-pool")


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    case = by_name("cancelled")
    assert case
    assert any("root is needed" in lack for lack in why_not(case, True))


def test_without_tracefs_or_a_cgroup_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracefs, "ROOTS", ())
    monkeypatch.setattr(quota, "CGROUPS", tmp_path)
    told = {case.name: "; ".join(why_not(case, False)) for case in LOOK_ALIKES}
    assert all("tracefs is not mounted" in words or "setpriv" in words for words in told.values())
    assert [name for name, words in told.items() if "no cgroup with a CPU quota" in words] == ["starved-client"]


def test_a_quota_needs_the_cpu_controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "CGROUPS", tmp_path)
    assert quota.find_root() is None
    (tmp_path / "cpu,cpuacct").mkdir()
    assert quota.find_root() == tmp_path / "cpu,cpuacct"  # version 1
    (tmp_path / "cgroup.subtree_control").write_text("memory pids\n")  # version 2
    assert quota.find_root() is None
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert quota.find_root() == tmp_path


def test_a_quota_is_set_counted_and_removed() -> None:
    if os.geteuid() != 0 or quota.why_not():
        pytest.skip(quota.why_not() or "root is needed")
    root, name = quota.find_root(), f"{janitor.own_prefix()}quota"
    assert root
    with subprocess.Popen(["sleep", "1000"]) as process:
        with quota.limiting(name, process.pid, 0.1) as told:
            assert f"/{name}" in Path(f"/proc/{process.pid}/cgroup").read_text()
        quota.remove(name)  # something still runs in it
        assert (root / name).is_dir()
        process.kill()
    assert told == {"processors": 0.1, "periods": told["periods"], "throttled": 0}
    quota.remove(name)
    quota.remove(name)
    assert not (root / name).exists()


def test_only_namespaces_of_dead_processes_are_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(janitor, "NETNS", tmp_path)
    alive = f"{janitor.own_prefix()}0-c"
    reused = f"{janitor.PREFIX}{os.getpid()}-1-0-c"  # another process had this number before
    for name in (alive, reused, f"{janitor.PREFIX}99999999-5-0-s", "somebody-elses", f"{janitor.PREFIX}x"):
        (tmp_path / name).touch()
    assert list(janitor.stale()) == [reused, f"{janitor.PREFIX}99999999-5-0-s"]
    assert janitor.own() == [alive]


@pytest.fixture
def laboratory() -> None:
    require_tool("tcpdump")
    require_tool("ip")
    if lacks := missing():
        pytest.skip(f"the lab cannot run here: {'; '.join(lacks)}")
    made = subprocess.run(["ip", "netns", "add", "grpcdiag-lab-probe"], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    subprocess.run(["ip", "netns", "delete", "grpcdiag-lab-probe"], check=True)


def namespaces_of(process: int) -> list[str]:
    return [path.name for path in janitor.NETNS.glob(f"{janitor.PREFIX}{process}-*")]


@pytest.mark.usefixtures("laboratory")
@pytest.mark.parametrize(("case", "tool"), [("cancelled", "tcpdump"), ("connect-failure", "nft")])
def test_a_case_end_to_end(case: str, tool: str, tmp_path: Path) -> None:
    require_tool(tool)
    outcome = grpcdiag("lab", case, "--fast", "--keep", str(tmp_path))
    assert outcome.code == 0, outcome.text + outcome.err
    assert f"{case}: as expected" in outcome.text
    kept = {path.name for path in tmp_path.iterdir()}
    assert {f"{case}.pcap", f"{case}.server.pcap", f"{case}.truth.json", f"{case}-control.pcap"} <= kept


@pytest.mark.usefixtures("laboratory")
@pytest.mark.parametrize("case", LOOK_ALIKES, ids=lambda case: case.name)
def test_a_look_alike_end_to_end(case: Case, tmp_path: Path) -> None:
    """Other programs may take the processors, which is told then; a cause that was not there never is."""
    if lacks := why_not(case, True):
        pytest.skip("; ".join(lacks))
    outcome = grpcdiag("lab", case.name, "--keep", str(tmp_path))
    assert outcome.code in (0, 1), outcome.err
    report = json.loads(run_here("analyze", str(tmp_path / f"{case.name}.pcap"), "--json").text)
    assert {one["side"] for one in report["processes"]} == {case.plans(True)[0].threads_of}
    told = {found["id"]: found.get("part_of") for found in report["findings"]}
    causes = {name for name, whole in told.items() if not whole}
    assert not causes & {*SUSPECTS} - {case.finding, "processor-saturated"}
    assert case.finding in told or outcome.code == 1, outcome.text


@pytest.mark.usefixtures("laboratory")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_behind(how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpcdiag", "lab", "server-latency", "--keep", str(tmp_path)]
    lab = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(namespaces_of(lab.pid)) == 2)
    lab.send_signal(how)
    lab.wait(PATIENCE_S)
    wait_until(lambda: not namespaces_of(lab.pid))
