"""`--also`: the same recording on another host, which here is this one, reached by a false ssh and by a real one."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorder import arguments, benchmark, capture, check_whole, free_port, gone, may_record, sidecar
from support import PATIENCE_S, wait_until

FALSE_SSH = """#!/bin/sh
# takes what ssh takes and runs it here
while [ "$1" != -- ]; do shift; done
shift 2
exec sh -c "$*"
"""


@pytest.fixture(autouse=True, scope="module")
def _right() -> None:
    may_record()
    pytest.importorskip("grpc")


@pytest.fixture(autouse=True)
def _alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One of these tests at a time, whatever other workers do: they look into the same /tmp."""
    with (tmp_path_factory.getbasetemp().parent / "remote.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def on_path(folder: Path, text: str, name: str = "ssh") -> dict[str, str]:
    """An environment in which a program is a script; the other end's temporary folder is `there`, next to it."""
    folder.mkdir()
    there = folder.with_name("there")
    there.mkdir(exist_ok=True)
    script = folder / name
    script.write_text(text)
    script.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(there)}


def left_there(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "there").glob("grpcdiag-*.pcap"))


def check_both(tmp_path: Path, env: dict[str, str]) -> None:
    port, file = free_port(), tmp_path / "run.pcap"
    words = ("-o", str(file), "-t", f"127.0.0.1:{port}", "--also", "there", "--", *benchmark(port, how="3"))
    done = capture(*words, env=env)
    assert done.returncode == 3, done.stderr
    counted = json.loads(done.stdout)
    check_whole(file, counted)
    check_whole(tmp_path / "run.there.pcap", counted)
    assert "run.there.pcap: from the other host" in done.stderr
    described = sidecar(tmp_path / "run.there.pcap")["host"]
    assert described["sysctls"] == sidecar(file)["host"]["sysctls"]
    assert set(described["addresses"]) == set(sidecar(file)["host"]["addresses"])
    assert not left_there(tmp_path)
    assert gone(f"{tmp_path}/there/grpcdiag-")


def test_both_ends_hold_every_rpc(tmp_path: Path) -> None:
    check_both(tmp_path, on_path(tmp_path / "bin", FALSE_SSH))


FALSE_KUBECTL = """#!/bin/sh
# takes what kubectl takes, and runs it here
[ "$1 $2 $3 $4 $5 $6 $7" = "exec -i -n shop cart-7f9c -c grpcdiag" ] || { echo "error: $*" >&2; exit 1; }
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


def test_a_container_is_reached_by_kubectl(tmp_path: Path) -> None:
    env = on_path(tmp_path / "bin", FALSE_KUBECTL, "kubectl")
    port, file = free_port(), tmp_path / "run.pcap"
    words = ("-o", str(file), "-p", str(port), "-i", "lo", "--also", "pod:shop/cart-7f9c:grpcdiag", "--")
    done = capture(*words, *benchmark(port), env=env)
    assert done.returncode == 0, done.stderr
    check_whole(tmp_path / "run.shop_cart-7f9c_grpcdiag.pcap", json.loads(done.stdout))
    described = sidecar(tmp_path / "run.shop_cart-7f9c_grpcdiag.pcap")
    assert described["host"]["sysctls"] and described["packets"]["captured"] > 0
    assert not left_there(tmp_path)


def test_a_file_that_kubectl_cuts_stays_there(tmp_path: Path) -> None:
    """It may lose the end of what a command prints, and report success."""
    cuts = FALSE_KUBECTL.replace('exec "$@"', 'case "$*" in *" cat "*) "$@" | head -c 100 ;; *) exec "$@" ;; esac')
    env = on_path(tmp_path / "bin", cuts, "kubectl")
    port, file = free_port(), tmp_path / "run.pcap"
    words = ("-o", str(file), "-p", str(port), "-i", "lo", "--also", "pod:shop/cart-7f9c:grpcdiag", "--")
    done = capture(*words, *benchmark(port), env=env)
    assert "has not the 100 bytes that were fetched" in done.stderr
    (kept,) = left_there(tmp_path)
    assert kept.stat().st_size > 100
    kept.unlink()


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "pod:", "pod:-n", "pod:a/b/c", "pod:a;b"])
def test_names_that_are_no_hosts(tmp_path: Path, name: str) -> None:
    done = capture("-o", str(tmp_path / "run.pcap"), "-p", "1", f"--also={name}", "--", "true")
    assert done.returncode == 2
    assert "write" in done.stderr


@pytest.fixture
def real_ssh(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An OpenSSH server on the loopback device, with keys of its own."""
    server, client = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), shutil.which("ssh")
    if server is None or client is None or os.geteuid() != 0:
        pytest.skip("a real ssh needs OpenSSH's server and client, and root to run it")
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    port = free_port()
    (keys / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/user.pub\n"
        f"StrictModes no\nSetEnv TMPDIR={tmp_path}/there\nUsePAM no\n"
        "PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
    )
    (keys / "ssh_config").write_text(
        f"Host there\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n IdentityFile {keys}/user\n"
        f" IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile {keys}/known\n LogLevel ERROR\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd becomes nobody
    with subprocess.Popen([server, "-D", "-e", "-f", str(keys / "sshd_config")], stderr=subprocess.PIPE) as running:
        assert running.stderr is not None
        line = running.stderr.readline()
        try:
            assert b"listening" in line, line
            yield on_path(tmp_path / "bin", f'#!/bin/sh\nexec {client} -F {keys}/ssh_config "$@"\n')
        finally:
            running.terminate()


def test_both_ends_by_a_real_ssh(tmp_path: Path, real_ssh: dict[str, str]) -> None:
    check_both(tmp_path, real_ssh)


def test_a_host_that_is_not_reached_starts_nothing(tmp_path: Path) -> None:
    env = on_path(tmp_path / "bin", "#!/bin/sh\necho 'ssh: Could not resolve hostname there' >&2; exit 255\n")
    mark = tmp_path / "it-ran"
    done = capture("-o", str(tmp_path / "run.pcap"), "-p", "1", "--also", "there", "--", "touch", str(mark), env=env)
    assert done.returncode == 125
    assert "--also there: ssh: Could not resolve hostname there" in done.stderr
    assert not mark.exists()
    assert gone(str(tmp_path / "run.pcap"))


def test_a_file_that_cannot_be_fetched_is_told(tmp_path: Path) -> None:
    broken = FALSE_SSH.replace("exec", 'case "$*" in cat*) echo lost >&2; exit 1;; esac\nexec')
    env = on_path(tmp_path / "bin", broken)
    done = capture("-o", str(tmp_path / "run.pcap"), "-p", "1", "--also", "there", "--", "sh", "-c", "exit 3", env=env)
    assert done.returncode == 3
    assert "could not be fetched: lost" in done.stderr
    (kept,) = left_there(tmp_path)
    assert str(kept) in done.stderr
    assert sorted(path.name for path in tmp_path.glob("run*")) == [
        "run.pcap",
        "run.pcap.grpcdiag-ss.jsonl",
        "run.pcap.grpcdiag.json",
    ]


def test_nothing_stays_there_when_we_are_killed(tmp_path: Path) -> None:
    env = on_path(tmp_path / "bin", FALSE_SSH)
    words = arguments("-o", str(tmp_path / "run.pcap"), "-p", "1", "-q", "--also", "there", "--", "sleep", "1000")
    with subprocess.Popen(words, env=env, start_new_session=True) as running:
        try:
            wait_until(lambda: list(tmp_path.glob("run.recording-*.grpcdiag-ss.jsonl")) and left_there(tmp_path))
            running.kill()
            running.wait(PATIENCE_S)
            assert gone(f"{tmp_path}/there/grpcdiag-")
            wait_until(lambda: not left_there(tmp_path))
            assert gone(str(tmp_path / "run.pcap"))
        finally:
            with contextlib.suppress(ProcessLookupError):  # it may not have come to start the command
                os.killpg(running.pid, signal.SIGKILL)
