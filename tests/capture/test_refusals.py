"""What goes wrong before and while a recording runs, played by a tcpdump of our own on PATH."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from recorder import AS_NOBODY, capture, gone, sidecar
from support import wait_until

PLAYER = """#!{python}
import os, re, signal, sys, time
out = sys.argv[sys.argv.index("-w") + 1] if "-w" in sys.argv else None
out = "/proc/self/fd/1" if out == "-" else out
def say(text):
    print(text, file=sys.stderr, flush=True)
def end(*_):
    say("1 packet captured"); say("2 packets received by filter"); say("{dropped} packets dropped by kernel")
    sys.exit(0)
def info(*_):
    say("tcpdump: 1 packet captured, 2 packets received by filter, 0 packets dropped by kernel")
if "--version" in sys.argv:
    print("tcpdump version 9.9.9"); print("libpcap version 9.9.9"); sys.exit(0)
signal.signal(signal.SIGINT, end); signal.signal(signal.SIGUSR1, info)
{body}
"""
LISTEN = """
say("tcpdump: listening on lo, link-type EN10MB (Ethernet), snapshot length 262144 bytes")
open(out, "ab").write(bytes.fromhex("4d3cb2a1020004000000000000000000000004000100000001000000020000000000000000000000"))
"""
WAIT = "while True: time.sleep(1)"


def player(tmp_path: Path, body: str, dropped: int = 0, python: str = sys.executable) -> dict[str, str]:
    """An environment in which `tcpdump` does what `body` says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "tcpdump"
    program.write_text(PLAYER.format(python=python, body=body, dropped=dropped))
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def tells_its_parent(folder: Path) -> str:
    """What `tcpdump` does so that `outlasts` knows the process that watches over it."""
    return f'open("{folder}/new", "w").write(str(os.getppid())); os.rename("{folder}/new", "{folder}/parent")\n'


def outlasts(folder: Path) -> str:
    """A shell's words: wait until the recording has seen that its `tcpdump` has ended."""
    return f"until p=$(cat {folder}/parent); do sleep 0.1; done 2>&-; while kill -0 $p; do sleep 0.1; done 2>&-"


def refused(tmp_path: Path, body: str, *words: str) -> tuple[int, str]:
    """What a recording says that must not run its command."""
    file, mark = tmp_path / "run.pcap", tmp_path / "it-ran"
    done = capture("-o", str(file), "-p", "50051", *words, "--", "touch", str(mark), env=player(tmp_path, body))
    assert not mark.exists(), "the command ran"
    assert gone(str(file))
    return done.returncode, done.stderr


def test_without_rights_it_says_which_capability_gives_them(tmp_path: Path) -> None:
    body = 'say("tcpdump: lo: You don\'t have permission to perform this capture on that device"); sys.exit(1)'
    code, said = refused(tmp_path, body)
    assert code == 125
    assert "You don't have permission" in said
    assert "setcap cap_net_raw,cap_net_admin=eip" in said and str(tmp_path / "bin" / "tcpdump") in said


def test_tcpdumps_own_words_are_told(tmp_path: Path) -> None:
    assert refused(tmp_path, 'say("tcpdump: no socket today"); sys.exit(1)') == (
        125,
        "grpcdiag: tcpdump does not record: no socket today\n",
    )


def test_a_tcpdump_that_cannot_write_there(tmp_path: Path) -> None:
    code, said = refused(tmp_path, 'say(f"tcpdump: {out}: Permission denied"); sys.exit(1)')
    assert code == 125
    assert "Permission denied" in said and "AppArmor" in said


def test_looking_for_the_right_to_record_leaves_devices_alone(tmp_path: Path) -> None:
    """Debian's tcpdump gives a file that it opens to its own user, when root starts it: once that was /dev/null."""
    said = tmp_path / "arguments"
    env = player(tmp_path, f'open({str(said)!r}, "w").write(" ".join(sys.argv))\n' + LISTEN.partition("open")[0] + WAIT)
    words = [sys.executable, "-m", "grpcdiag", "doctor", "--for", "recording"]
    subprocess.run(words, env=env, capture_output=True, timeout=60, check=False)
    assert "-w - " in said.read_text()


def test_without_tcpdump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpcdiag.capture import tcpdump, tools
    from grpcdiag.capture.errors import RecordingError

    monkeypatch.setattr(tools, "SBIN", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RecordingError, match="apt install tcpdump"):
        tcpdump.find()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--filter", "port 1 and"), "'port 1 and': libpcap says: can't parse filter expression: syntax error"),
        (("--filter", "port 1) or (port 2"), "syntax error"),
        (("--filter", "port 99999"), "illegal port number 99999 > 65535"),
        (("-i", "nosuch0"), "no interface has the name 'nosuch0'; known: "),
        (("-t", "127.0.0.1"), "write HOST:PORT"),
        (("-t", "127.0.0.1:0"), "write HOST:PORT"),
        (("-t", "nosuch.invalid:1"), "nosuch.invalid: "),
        (("--rotate", "banana"), "write SIZE or SIZExN"),
        (("--rotate", "1k"), "at least 1M"),
        (("--user", "nobody-of-that-name"), "--user nobody-of-that-name"),
        (("--also", "-oProxyCommand=touch x"), "write a host as for ssh"),
    ],
)
def test_wrong_usage_starts_nothing(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    if "--filter" in words:
        pytest.importorskip("cypcap")
    code, err = refused(tmp_path, f'open({str(tmp_path / "started")!r}, "w"); {WAIT}', *words)
    assert (code, said in err) == (2, True), err
    assert not (tmp_path / "started").exists() or words[0] == "--also"


def test_a_wrong_filter_is_an_error_without_the_binding_too(tmp_path: Path) -> None:
    from grpcdiag.capture import tcpdump
    from grpcdiag.capture.errors import UsageError

    env = player(tmp_path, 'say("tcpdump: can\'t parse filter expression: syntax error"); sys.exit(1)')
    line = tcpdump.arguments(
        str(Path(env["PATH"].split(":")[0]) / "tcpdump"), interface="lo", expression="prot 1", output="x.pcap"
    )
    running = tcpdump.Tcpdump(line)
    with pytest.raises(UsageError, match="can't parse filter expression: syntax error"):
        running.listen()


@pytest.mark.parametrize(("name", "code"), [("./no-such-command", 127), ("/etc/passwd", 126), ("nosuchcommand", 127)])
def test_a_command_that_cannot_be_started(name: str, code: int, tmp_path: Path) -> None:
    done = capture("-o", str(tmp_path / "run.pcap"), "--", name, env=player(tmp_path, LISTEN + WAIT))
    assert done.returncode == code
    assert name in done.stderr
    assert gone(str(tmp_path))


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    done = capture("-o", str(tmp_path / "no" / "run.pcap"), "--", "true", env=player(tmp_path, LISTEN + WAIT))
    assert done.returncode == 2
    assert "cannot write" in done.stderr and "No such file or directory" in done.stderr


def test_an_interface_that_vanishes_is_told_and_the_command_goes_on(tmp_path: Path) -> None:
    vanishes = 'time.sleep(0.3); say("tcpdump: pcap_loop: The interface disappeared"); sys.exit(1)'
    file, mark = tmp_path / "run.pcap", tmp_path / "it-ran"
    command = ["sh", "-c", f"{outlasts(tmp_path)}; touch {mark}; exit 3"]
    body = LISTEN + tells_its_parent(tmp_path) + vanishes
    done = capture("-o", str(file), "--", *command, env=player(tmp_path, body))
    assert (done.returncode, mark.exists()) == (3, True)
    assert "tcpdump ended before the command (exit code 1): pcap_loop: The interface disappeared" in done.stderr
    assert "The interface disappeared" in sidecar(file)["problems"][0]


def test_dropped_packets_are_told(tmp_path: Path) -> None:
    env = player(tmp_path, LISTEN + WAIT, dropped=17)
    done = capture("-o", str(tmp_path / "run.pcap"), "-q", "--", "true", env=env)
    assert done.returncode == 0
    assert "17 of 18 packets were dropped because the buffer was full: use a larger --buffer" in done.stderr
    assert sidecar(tmp_path / "run.pcap")["packets"]["dropped"] == 17


def test_a_file_that_lacks_packets_is_told(tmp_path: Path) -> None:
    body = LISTEN + 'open(out, "ab").write(bytes(7))\n' + WAIT
    done = capture("-o", str(tmp_path / "run.pcap"), "--", "true", env=player(tmp_path, body))
    assert "the file has 1 complete packets of the 1 that tcpdump wrote, and is cut at byte 40: is the" in done.stderr


def test_a_tcpdump_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard asks first, then kills; here with less patience."""
    guard = (Path(__file__).parents[2] / "capture" / "guard.py").read_text()
    script = tmp_path / "guard.py"
    script.write_text(guard.replace("PATIENCE_S = 10.0", "PATIENCE_S = 0.5"))
    deaf = f"import signal,time; signal.signal(2, signal.SIG_IGN); print('up', flush=True); time.sleep(60) # {tmp_path}"
    with subprocess.Popen(
        [sys.executable, str(script), sys.executable, "-c", deaf], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        running.stdin.close()
        assert running.wait(300) == 137
    assert gone(str(tmp_path))


def test_the_snaplens_price_is_told(tmp_path: Path) -> None:
    env = player(tmp_path, LISTEN + WAIT)
    done = capture("-o", str(tmp_path / "run.pcap"), "-s", "128", "--", "true", env=env)
    assert "packets are truncated at 128 bytes" in done.stderr
    assert sidecar(tmp_path / "run.pcap")["capture"]["snaplen"] == 128


def test_full_disk_stops_the_recording_and_not_the_command(tmp_path: Path) -> None:
    """On a small file system of its own, made in a mount namespace that ends with the process."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a file system of its own needs root and unshare")
    small = tmp_path / "small"
    small.mkdir()
    body = (
        LISTEN + tells_its_parent(tmp_path) + 'f = open(out, "ab")\n'
        "while True:\n"
        "    try: f.write(bytes(16) * 4096); f.flush()\n"
        "    except OSError: pass\n"
        "    time.sleep(0.02)\n"
    )
    file = small / "run.pcap"
    command = ["sh", "-c", f"{outlasts(tmp_path)}; exit 3"]
    inner = [sys.executable, "-m", "grpcdiag", "capture", "-o", str(file), "--", *command]
    script = f'mount -t tmpfs -o size=4m tmpfs {small} && "$@"; c=$?; ls {small}; exit $c'
    env = player(tmp_path, body)
    done = subprocess.run(
        ["unshare", "--mount", "--", "sh", "-c", script, "sh", *inner],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 3, done.stderr
    assert "the disk is almost full" in done.stderr
    assert "later packets are not recorded" in done.stderr
    assert "run.pcap.grpcdiag.json" in done.stdout
    assert gone(str(file))


def test_too_little_room_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpcdiag.capture import recording
    from grpcdiag.capture.errors import RecordingError
    from grpcdiag.files.folder import Folder

    monkeypatch.setattr(Folder, "free_bytes", lambda _: 1000)
    plan = recording.Plan(("true",), str(tmp_path / "x.pcap"), "lo", "tcp")
    with pytest.raises(RecordingError, match="1,000 bytes are free on the disk"):
        recording.record(plan, lambda _: None)


def test_root_does_not_run_the_command_as_root(tmp_path: Path, home: Path) -> None:
    """Under sudo it is run by the one who called it; the files are theirs."""
    env = player(home.parent, LISTEN + WAIT) | AS_NOBODY
    file = home / "run.pcap"
    script = "PATH=/usr/bin:/bin; id -u; id -G; echo $HOME $USER"  # ours may lead where nobody may not look
    done = capture("-o", str(file), "-q", "--", "/bin/sh", "-c", script, env=env)
    assert done.returncode == 0, done.stderr
    ids, groups, rest = done.stdout.splitlines()
    assert int(ids) == 65534 and "0" not in groups.split() and rest.endswith(" nobody")
    assert file.stat().st_uid == 65534
    assert sidecar(file)["command"]["user"] == "nobody"
    done = capture("-o", str(file), "-q", "--user", "root", "--", "id", "-u", env=env)
    assert done.stdout == "0\n"


def test_what_ss_says_is_read() -> None:
    from grpcdiag.capture import sockets

    text = (
        "ESTAB 0      0              10.0.0.1:40000      10.0.0.2:50051\n"
        "\t cubic wscale:7,7 rto:408 rtt:205.1/0.05 ato:40 mss:1408 pmtu:1460 rcvmss:536 advmss:1408 cwnd:23 "
        "ssthresh:20 bytes_sent:9000 bytes_acked:8001 segs_out:9 send 1263000bps lastsnd:4 pacing_rate 1515000bps "
        "delivery_rate 5000bps delivered:8 app_limited busy:400ms unacked:3 retrans:1/4 minrtt:205\n"
        "ESTAB 0      0    [::ffff:10.0.0.2]:50051 [::ffff:10.0.0.1]:40000\n"
        "FIN-WAIT-2 0 0 [fe80::1%eth0]:1 [fe80::2]:2\n"
    )
    first, second, third = sockets.parse(text)
    assert (first["local"], first["peer"], first["state"]) == ("10.0.0.1:40000", "10.0.0.2:50051", "ESTAB")
    assert (first["cwnd"], first["ssthresh"], first["mss"], first["rtt_us"]) == (23, 20, 1408, 205_100)
    assert (first["retrans"], first["retrans_total"], first["app_limited"]) == (1, 4, True)
    assert (first["delivery_rate_bps"], first["bytes_acked"], first["congestion_control"]) == (5000, 8001, "cubic")
    assert (second["local"], "cwnd" in second) == ("10.0.0.2:50051", False)
    assert (third["local"], third["peer"]) == ("[fe80::1]:1", "[fe80::2]:2")


def test_samples_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpcdiag.capture import sockets

    line = "ESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t cubic cwnd:10 mss:1000\n"
    looks = Mock(return_value=line * 300)
    monkeypatch.setattr(sockets, "output_of_ss", looks)
    with (tmp_path / "s.jsonl").open("wb") as file:
        sampler = sockets.Sampler(file.fileno(), [], 0.001, most_bytes=200_000)
        wait_until(lambda: looks.call_count > 20)  # more than there is room for
        sampler.stop()
    written = (tmp_path / "s.jsonl").read_bytes()
    assert len(written) <= 200_000
    assert sampler.every_s > 0.001
    rows = [json.loads(row) for row in written.splitlines()]
    assert {(len(row["sockets"]), row["left_out"]) for row in rows} == {(256, 44)}


def test_filters_are_built() -> None:
    from grpcdiag.capture import filters

    assert filters.expression([], []) == "(tcp) or icmp or icmp6 or port 53"
    assert filters.expression([1, 2, 1], ["a"], "not port 3") == (
        "((tcp and (port 1 or port 2) and host a) or icmp or icmp6 or port 53) and (not port 3)"
    )


def test_rotations_are_read() -> None:
    from grpcdiag.capture.tcpdump import Rotation, rotation

    assert rotation("100M") == Rotation(100)
    assert rotation("2Gx10") == Rotation(2000, 10)
    assert rotation("5000kb x 3") == Rotation(5, 3)


def test_callers_that_contradict_each_other_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of doas may pass the caller's SUDO_USER on."""
    from grpcdiag.capture.command import choose_user
    from grpcdiag.capture.errors import UsageError

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_USER", "root")
    monkeypatch.setenv("DOAS_USER", "nobody")
    with pytest.raises(UsageError, match="different callers"):
        choose_user(None)
    assert choose_user("root") is None
