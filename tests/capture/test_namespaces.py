"""`capture --netns` and `--container`: where a recording is made, and what is said of one made elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorder import capture, free_port, may_record, sidecar
from support import REPOSITORY, run_here, wait_until

from grpcdiag.capture import containers, namespaces, savefile, tools
from grpcdiag.capture.errors import UsageError

WEB, DB, OLD, TWICE = ("0a" * 32, "0b" * 32, "0c" * 32, "0d" * 32)
CGROUPS = {
    1: "0::/init.scope",
    20: f"12:pids:/docker/{WEB}\n1:name=systemd:/docker/{WEB}",
    21: f"0::/docker/{WEB}",
    30: f"0::/system.slice/docker-{DB}.scope",
    40: f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{'1a' * 32}.scope",
    41: f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{'1b' * 32}.scope",
    50: f"0::/kubepods.slice/kubepods-pod2.slice/crio-{'2a' * 32}.scope",
    60: f"0::/machine.slice/libpod-{'3a' * 32}.scope/container",
    70: "0::/default/redis-1",
    10: f"0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{WEB}.scope",
    22: f"0::/docker/{WEB}/kubelet.slice/cri-containerd-{'4a' * 32}.scope",
    80: f"0::/docker/{TWICE}",
    81: f"0::/system.slice/delegated.service/docker-{TWICE}.scope",
}
"""What /proc/PID/cgroup has in containers of Docker, containerd, CRI-O, podman and ctr.

10 and 81 are of users who gave their cgroups the ids of others; 22 is in a container inside a container.
"""
SPACES = {41: 40, 21: 20}
"""Processes in the network namespace of another one."""
TASKS = "run/containerd/io.containerd.runtime.v2.task"
POD = {"io.kubernetes.cri.sandbox-name": "shop-7f"}
MANIFESTS = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs" / "kubernetes.md").read_text(), re.DOTALL)
STATES: dict[str, object] = {
    f"var/lib/docker/containers/{WEB}/config.v2.json": {"ID": WEB, "Name": "/web"},
    f"var/lib/docker/containers/{DB}/config.v2.json": {"ID": DB, "Name": "/db"},
    f"var/lib/docker/containers/{OLD}/config.v2.json": {"ID": OLD, "Name": "/old"},
    f"{TASKS}/k8s.io/{'1a' * 32}/config.json": {"annotations": POD},
    f"{TASKS}/k8s.io/{'1b' * 32}/config.json": {"annotations": {**POD, "io.kubernetes.cri.container-name": "cart"}},
    f"{TASKS}/default/redis-1/config.json": {"annotations": {"nerdctl/name": "redis"}},
    f"run/containers/storage/overlay-containers/{'2a' * 32}/userdata/config.json": {
        "annotations": {"io.kubernetes.pod.name": "pay-0"}
    },
    "var/lib/containers/storage/overlay-containers/containers.json": [{"id": "3a" * 32, "names": ["pod_web"]}],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a machine with containers."""
    root = tmp_path_factory.mktemp("root")
    for pid, text in CGROUPS.items():
        folder = root / f"proc/{pid}/ns"
        folder.mkdir(parents=True)
        (folder.parent / "cgroup").write_text(text + "\n")
        (folder / "net").hardlink_to(root / f"proc/{SPACES[pid]}/ns/net") if pid in SPACES else (folder / "net").touch()
    for name, state in STATES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(state))
    broken = root / "var/lib/docker/containers/broken/config.v2.json"
    broken.parent.mkdir()
    broken.write_bytes(b'{"ID": \xff')
    return root


@pytest.mark.parametrize(
    ("text", "pid"),
    [
        *[
            ("web", 20),
            ("db", 30),
            (WEB, 20),
            (WEB[:12], 20),
            ("shop-7f", 40),
            ("cart", 40),
            ("1b1b1b1b", 40),
            ("4a4a4a", 22),
        ],
        *[("redis", 70), ("redis-1", 70), ("pay-0", 50), ("pod_web", 60), ("3a3a3a", 60)],
    ],
)
def test_a_container_is_found_by_name_and_id(text: str, pid: int, root: Path) -> None:
    found = containers.find(text, str(root))
    assert SPACES.get(found, found) == pid


@pytest.mark.parametrize(
    ("text", "why"),
    [("none", "no such name or id"), ("0a0a", "no such"), ("old", "none of its processes"), ("init.scope", "no such")],
)
def test_a_container_that_is_not_there(text: str, why: str, root: Path) -> None:
    with pytest.raises(UsageError, match=why):
        containers.find(text, str(root))


def test_one_name_of_several_containers(root: Path, tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to(root / "proc")
    for id_ in (WEB, DB):
        path = tmp_path / f"{TASKS}/k8s.io/{id_}/config.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"annotations": {"io.kubernetes.cri.container-name": "app"}}))
    why = r"several network namespaces: 0a0a0a0a0a0a \(process 20\), 0b0b0b0b0b0b \(process 30\)"
    with pytest.raises(UsageError, match=why):
        containers.find("app", str(tmp_path))


def test_one_id_in_several_network_namespaces(root: Path) -> None:
    """Whoever may make a cgroup may give it the id of another container, and a process number may be lower."""
    with pytest.raises(UsageError, match=r"0d0d0d0d0d0d \(process 80\), 0d0d0d0d0d0d \(process 81\)"):
        containers.find(TWICE[:12], str(root))


def test_a_container_whose_name_is_the_id_of_another(root: Path, tmp_path: Path) -> None:
    (tmp_path / "proc").symlink_to(root / "proc")
    path = tmp_path / f"var/lib/docker/containers/{DB}/config.v2.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"ID": DB, "Name": f"/{WEB[:12]}"}))
    with pytest.raises(UsageError, match="several network namespaces"):
        containers.find(WEB[:12], str(tmp_path))


def test_processes_whose_namespace_is_hidden_are_of_one(root: Path, tmp_path: Path) -> None:
    """An ordinary user cannot read it: entering then says what is missing."""
    for pid in (20, 21):
        (tmp_path / f"proc/{pid}").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/cgroup").write_text(CGROUPS[pid])
    assert containers.find(WEB, str(tmp_path)) == 20


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--netns", "/dev/null"], "/dev/null is not a network namespace"),
        (["--netns", "/proc/self/ns/pid"], "/proc/self/ns/pid is not a network namespace"),
        (["--netns", "no-such-name"], "/run/netns/no-such-name: No such file or directory"),
        (["--netns", "a", "--container", "b"], "give one"),
    ],
)
def test_what_is_no_network_namespace(words: list[str], why: str) -> None:
    done = run_here("capture", *words, "-p", "1", "--", "true")
    assert (done.code, why in done.err) == (2, True), done.err


@pytest.fixture
def space() -> Iterator[str]:
    """A named network namespace with a loopback device."""
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    may_record()
    name = f"grpcdiag-test-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    if made.returncode:
        pytest.skip("network namespaces cannot be made here")
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)


SENDS = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'ping', ('127.0.0.1', 9))"
"""No program listens there, so the kernel answers with ICMP."""
CONNECTS = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"


def test_tcpdump_enters_and_the_command_stays_outside(space: str, tmp_path: Path) -> None:
    file = tmp_path / "run.pcap"
    command = f'readlink /proc/self/ns/net; ip netns exec {space} {sys.executable} -c "{SENDS}"'
    done = capture("--netns", space, "-o", str(file), "-i", "lo", "-p", "9", "--", "sh", "-c", command)
    assert done.stdout.strip() == str(Path("/proc/self/ns/net").readlink())
    assert savefile.look(os.open(file, os.O_RDONLY)).packets == 1, done.stderr
    host = sidecar(file)["host"]
    assert host["network_namespace"] not in (None, done.stdout.strip())
    assert host["addresses"] == ["127.0.0.1", "::1"]
    assert "net.ipv4.tcp_rmem" in host["sysctls"]
    assert not tools.list_prefix()


def test_the_namespace_of_a_process_is_entered(space: str, tmp_path: Path) -> None:
    """By `capture --pid`, and by `watch --pid`: the packets there are recorded, and those here are not."""
    file = tmp_path / "run.pcap"
    inside = ["ip", "netns", "exec", space]
    with subprocess.Popen([*inside, "sleep", "1000"]) as there:
        try:
            wait_until(lambda: namespaces.locate(None, None, [there.pid]))  # ip has entered it
            assert namespaces.locate(None, None, [os.getpid()]) is None
            with pytest.raises(UsageError, match="are in several network namespaces: give --netns"):
                namespaces.locate(None, None, [os.getpid(), there.pid])
            command = f'{sys.executable} -c "{SENDS}"; ip netns exec {space} {sys.executable} -c "{SENDS}"'
            words = ["--pid", str(there.pid), "--processes", "off", "-o", str(file), "-i", "lo", "-p", "9", "--"]
            done = capture(*words, "sh", "-c", command)
            assert savefile.look(os.open(file, os.O_RDONLY)).packets == 1, done.stderr
            watch = [sys.executable, "-m", "grpcdiag", "watch", "--json", "--pid", str(there.pid), "-i", "lo"]
            with subprocess.Popen(watch, stdout=subprocess.PIPE) as watching:
                assert watching.stdout is not None
                for line in watching.stdout:
                    if json.loads(line)["packets"]:
                        break
                    subprocess.run([*inside, sys.executable, "-c", CONNECTS], check=True)
                watching.terminate()
                watching.stdout.read()
        finally:
            there.kill()


def test_a_number_that_a_process_had_is_not_used() -> None:
    with subprocess.Popen(["sleep", "1000"]) as one:
        with namespaces.held([one.pid]) as check:
            check()
            one.kill()
            one.wait()
            with pytest.raises(UsageError, match=f"--pid {one.pid}: it has ended"):
                check()
        with pytest.raises(UsageError, match="No such process"), namespaces.held([one.pid]):
            pass


def test_a_recording_without_packets_names_processes_of_other_namespaces(space: str) -> None:
    port = free_port()
    listens = (
        f"import socket, sys; server = socket.create_server(('127.0.0.1', {port})); print(flush=True); sys.stdin.read()"
    )
    words = ["ip", "netns", "exec", space, sys.executable, "-c", listens]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None and server.stdout.readline()
        (hint,) = namespaces.list_hints(None, [port], [])
        assert f"--netns /proc/{server.pid}/ns/net" in hint and "has a TCP socket with that port" in hint
        assert namespaces.list_hints(None, [1], [server.pid]) == [
            hint.replace(" and has a TCP socket with that port", "")
        ]
        assert not namespaces.list_hints(f"/run/netns/{space}", [port], [server.pid])
        server.stdin and server.stdin.close()


@pytest.mark.parametrize("text", MANIFESTS, ids=range(len(MANIFESTS)))
def test_manifests_are_what_kubernetes_takes(text: str) -> None:
    manifest = pytest.importorskip("yaml").safe_load(text)
    if manifest["kind"] != "Role":
        spec = manifest["spec"].get("template", manifest)["spec"]
        own = next(one for one in spec["containers"] if one["name"] == "grpcdiag")
        assert not spec["automountServiceAccountToken"] and own["securityContext"]["capabilities"]["drop"] == ["ALL"]
    validate = pytest.importorskip("kubernetes_validate")  # it brings the schemas of all versions, 108 MB
    validate.validate(manifest, str(validate.latest_version()), strict=True)
