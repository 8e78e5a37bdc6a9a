"""`capture --keys`: the command writes its TLS secrets to a private file, which `analyze` finds."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from recorder import AS_NOBODY, NOBODY, capture, may_record
from support import RECORDED, run_here

from grpcdiag.capture import keys
from grpcdiag.capture.output import Output

TLS = RECORDED / "tls"
LINE = f"CLIENT_RANDOM {'0a' * 32} {'0b' * 48}"
WRITES = f'case "$NODE_OPTIONS" in *--tls-keylog=*) echo {LINE} >>"$SSLKEYLOGFILE";; esac'
"""Stands for a TLS library: it appends to what the environment names."""
PINGS = WRITES + "; exec 3<>/dev/udp/127.0.0.1/9; echo ping >&3"
ON = ("-i", "lo", "--filter", "udp port 9", "--samples", "0", "--linger", "0")


def rpcs(file: Path, *words: str) -> int:
    done = run_here("analyze", "--json", str(file), *words)
    return int(json.loads(done.text)["totals"]["rpcs"])


@pytest.mark.parametrize("compressed", ["", ".gz"])
def test_analyze_finds_the_key_log_next_to_the_capture(compressed: str, tmp_path: Path) -> None:
    file = tmp_path / f"run.pcap{compressed}"
    shutil.copy(TLS / "warm.pcap", tmp_path / "run.pcap")
    if compressed:
        import gzip

        file.write_bytes(gzip.compress((TLS / "warm.pcap").read_bytes()))
    assert rpcs(file) == 0
    beside = tmp_path / "run.pcap.grpcdiag-keys"
    shutil.copy(TLS / "warm.keys", beside)
    assert rpcs(file) == 5
    assert rpcs(file, "--keylog", str(TLS / "churn.keys")) == 0  # what the user names takes precedence


def test_a_key_log_of_ecapture_is_read(tmp_path: Path) -> None:
    """`ecapture tls -m keylog` writes lower-case digits, both secrets of the client first, and the exporter's too."""
    secrets = {line.split()[0]: line for line in (TLS / "warm.keys").read_text().splitlines()}
    of_client, of_server = (
        [secrets[f"{side}_HANDSHAKE_TRAFFIC_SECRET"], secrets[f"{side}_TRAFFIC_SECRET_0"]]
        for side in ("CLIENT", "SERVER")
    )
    random = of_client[0].split()[1]
    log = tmp_path / "ecapture_openssl_key.log"
    log.write_text("\n".join([*of_client, *of_server, f"EXPORTER_SECRET {random} {'5a' * 32}"]) + "\n")
    assert log.read_text() == log.read_text().replace(random, random.lower())
    assert rpcs(TLS / "warm.pcap", "--keylog", str(log)) == 5


def test_tables_find_it_too(tmp_path: Path) -> None:
    file = tmp_path / "run.pcap"
    shutil.copy(TLS / "warm.pcap", file)
    shutil.copy(TLS / "warm.keys", tmp_path / "run.pcap.grpcdiag-keys")
    assert len(run_here("rpcs", str(file), "--format", "jsonl").text.splitlines()) == 5


def test_embedded_secrets_decrypt_the_same_packets(tmp_path: Path) -> None:
    file, secrets = tmp_path / "run.pcapng", (TLS / "warm.keys").read_bytes()
    with (TLS / "warm.pcap").open("rb") as source:
        file.write_bytes(b"".join(keys.list_pieces(source.fileno(), secrets)))
    assert rpcs(file) == 5
    packets = [run_here("packets", str(one), "--format", "csv").text for one in (file, TLS / "warm.pcap")]
    assert packets[0] == packets[1]


def test_others_may_read_the_capture_but_not_its_key_log(tmp_path: Path) -> None:
    output = Output(tmp_path / "run.pcap", None, 0o644, None)
    descriptor, _ = output.make_keys()
    os.write(descriptor, LINE.encode())
    assert output.publish() == ([str(tmp_path / "run.pcap")], [])
    output.discard()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"run.pcap": 0o644, "run.pcap.grpcdiag-keys": 0o600}


@pytest.mark.parametrize("option", ["--keys", "--embed-keys"])
def test_the_command_writes_its_secrets(option: str, home: Path) -> None:
    """As the user who called sudo; a key log of an earlier recording goes."""
    may_record()
    (home / "run.pcap.grpcdiag-keys").write_text("old")
    env = {**os.environ, **AS_NOBODY}
    done = capture(option, "-o", "run.pcap", *ON, "--", "bash", "-c", PINGS, cwd=home, env=env)
    assert done.returncode == 0, done.stderr
    beside, file = home / "run.pcap.grpcdiag-keys", home / "run.pcap"
    if option == "--keys":
        assert beside.read_text() == LINE + "\n"
        assert (beside.stat().st_uid, stat.S_IMODE(beside.stat().st_mode)) == (NOBODY, 0o600)
    else:
        assert LINE.encode() in file.read_bytes() and not beside.exists()
    assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (NOBODY, 0o600)
    assert "has the TLS secrets of 1 connection\n" in done.stderr
    assert not [path.name for path in home.iterdir() if "recording" in path.name or path.name.startswith(".")]


@pytest.mark.parametrize(
    ("written", "said"),
    [(b"", "COMMAND wrote no TLS secrets"), (b"RSA Session-ID:0a Master-Key:0b\n", "decrypts nothing")],
)
def test_a_command_without_secrets(written: bytes, said: str, tmp_path: Path) -> None:
    output = Output(tmp_path / "run.pcap", None, 0o600, None)
    log = keys.KeyLog(output, embedded=True)
    Path(log.variables["SSLKEYLOGFILE"]).write_bytes(written)
    assert said in log.settle()
    output.publish()
    output.discard()
    assert (tmp_path / "run.pcap.grpcdiag-keys").exists() == bool(written)


@pytest.mark.parametrize(
    "words",
    [["--keys"], ["--keys", "-o", "-", "--", "true"], ["--embed-keys", "--rotate", "1M", "--", "true"]],
)
def test_what_keys_needs(words: list[str]) -> None:
    done = run_here("capture", *words)
    assert (done.code, "--keys and --embed-keys need" in done.err) == (2, True)


def test_names_for_node_are_quoted() -> None:
    assert keys.name_variables('/a "b"\\c')["NODE_OPTIONS"].endswith('"--tls-keylog=/a \\"b\\"\\\\c"')
