"""`grpcdiag scrub`: the same analysis, and nothing of what was sent."""

from __future__ import annotations

import gzip
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from canaries import PREFACE, Places, everything, pcapng
from support import ALL_CAPTURES, RECORDED, grpcdiag, invoke, recorded, require_tool, run_here, synthetic

from grpcdiag.analyzer.scrub import Report, Scrubbing, analyses, row_differences
from grpcdiag.reports.scrub import differences, notes

KEY = bytes(range(32))


def scrubbed(files: Sequence[str], out: Path, *, hide_methods: bool = False) -> Report:
    """Writes the scrubbed capture without looking at it."""
    scrubbing = Scrubbing(files, key=KEY, hide_methods=hide_methods)
    out.write_bytes(b"".join(scrubbing.pieces()))
    return scrubbing.report()


@pytest.mark.parametrize(
    ("files", "hide_methods"),
    [pytest.param(*c.values, False, id=c.id) for c in ALL_CAPTURES]
    + [pytest.param(*c.values, True, id=f"{c.id}-hidden") for c in ALL_CAPTURES[::4]],
)
def test_the_scrubbed_capture_gives_the_same_analysis(
    files: tuple[str, ...], hide_methods: bool, tmp_path: Path
) -> None:
    out = tmp_path / "out.pcap"
    report = scrubbed(files, out, hide_methods=hide_methods)
    assert list(differences(*analyses(files, [str(out)], report))) == []
    assert list(row_differences(files, [str(out)])) == []
    assert report.fragments == 0


def test_a_difference_is_seen(tmp_path: Path) -> None:
    """The comparison is no formality: another capture, and a changed octet of structure, are told."""
    file, out = recorded("rpc-errors.pcap"), tmp_path / "out.pcap"
    report = scrubbed([file], out)
    other = [*differences(*analyses([recorded("impl-go.pcap")], [str(out)], report))]
    assert "totals.rpcs" in other
    octets = bytearray(out.read_bytes())
    at = octets.index(PREFACE)
    octets[at] ^= 1
    out.write_bytes(octets)
    assert [*differences(*analyses([file], [str(out)], report))]
    assert "frames" in [*row_differences([file], [str(out)])]


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Places, Path]:
    places = Places()
    packets = everything(places)
    file = tmp_path / "in.pcapng"
    file.write_bytes(pcapng(places, packets))
    return places, file


@pytest.mark.parametrize("options", [(), ("--hide-methods",)], ids=["methods", "hidden"])
def test_no_canary_survives(planted: tuple[Places, Path], tmp_path: Path, options: tuple[str, ...]) -> None:
    places, file = planted
    assert len(places.planted) > 40
    assert set(places.survivors(file.read_bytes())) >= set(places.planted) - {"tcp-option", "ping", "setting"}
    out = tmp_path / "out.pcapng"
    outcome = run_here("scrub", str(file), "-o", str(out), *options)
    assert (outcome.code, outcome.out) == (0, b""), outcome.err
    written = out.read_bytes()
    assert list(places.survivors(written)) == []
    for host in ("8.20.30.40", "8.20.30.41", "2a01::1"):
        assert host not in outcome.err
    assert bytes([8, 20, 30, 40]) not in written
    assert bytes.fromhex("00163e112233") not in written
    for report in (("--json",), (), ("--format", "json")):
        told = run_here("analyze", str(out), *report)
        assert told.code == 0
        assert list(places.survivors(told.out + told.err.encode())) == []
        assert ("lab.v1.Lab/Echo" in told.text) == (not options)
    assert "grpc-go/1.85.0" in told.text
    assert "NOT_FOUND" in told.text
    assert "1 connection (" in outcome.err
    assert "TLS" in outcome.err
    assert "of protocols other than TCP" in outcome.err


def test_checksums_are_right_and_wireshark_reads_it(planted: tuple[Places, Path], tmp_path: Path) -> None:
    tshark = require_tool("tshark")
    import subprocess

    out = tmp_path / "out.pcapng"
    assert run_here("scrub", str(planted[1]), "-o", str(out)).code == 0
    checked = [f"-o{layer}.check_checksum:TRUE" for layer in ("ip", "tcp", "udp")]
    wrong = "ip.checksum.status==0 || tcp.checksum.status==0 || udp.checksum.status==0 || icmp.checksum.status==0"
    found = subprocess.run([tshark, "-r", str(out), *checked, "-Y", wrong], capture_output=True, text=True, check=True)
    assert found.stdout == ""
    fields = ["-Tfields", "-ehttp2.headers.path", "-ehttp2.headers.user_agent", "-ehttp2.headers.status"]
    port = ["-d", "tcp.port==50051,http2", "-Y", "http2.headers.path"]
    read = subprocess.run([tshark, "-r", str(out), *port, *fields], capture_output=True, text=True, check=True)
    assert read.stdout.count("/lab.v1.Lab/Echo") == 3
    assert "grpc-go/1.85.0" in read.stdout


def test_equal_texts_have_equal_replacements_and_runs_have_others(tmp_path: Path) -> None:
    outs = [tmp_path / f"{run}.pcap" for run in range(2)]
    for out in outs:
        assert run_here("scrub", recorded("impl-cpp.pcap"), "-o", str(out), "--hide-methods", "--quiet").err == ""
    analyses_ = [json.loads(run_here("analyze", "--json", str(out)).out) for out in outs]
    names = [{method["method"] for method in document["methods"]} for document in analyses_]
    before = json.loads(run_here("analyze", "--json", recorded("impl-cpp.pcap")).out)
    assert len(names[0]) == len(before["methods"])
    assert not names[0] & names[1]
    assert not (names[0] | names[1]) & {method["method"] for method in before["methods"]}
    assert all(name.count("/") == 2 and name.startswith("/") for name in names[0])


def test_addresses_keep_what_they_share(tmp_path: Path) -> None:
    report = scrubbed([recorded("any.pcap")], tmp_path / "out.pcap")
    for old, new in report.addresses.items():
        private = [text.startswith(("10.", "127.", "192.168.", "172.")) for text in (old, new)]
        assert private[0] == private[1]


def test_a_pcap_stays_one_and_keeps_its_times(tmp_path: Path) -> None:
    file, out = recorded("impl-go.pcap"), tmp_path / "out.pcap"
    report = scrubbed([file], out)
    before, after = Path(file).read_bytes(), out.read_bytes()
    assert report.format == "pcap"
    assert len(before) == len(after)
    assert before[:4] == after[:4]
    at = 24
    while at < len(before):
        assert before[at : at + 16] == after[at : at + 16], "a record's header"
        at += 16 + struct.unpack_from("<I", before, at + 8)[0]


def test_standard_input_compression_and_rotation(tmp_path: Path) -> None:
    file = Path(recorded("rpc-errors.pcap"))
    out = tmp_path / "out.pcap"
    assert grpcdiag("scrub", "-", "-o", str(out), stdin=file.read_bytes()).code == 0
    packed = tmp_path / "packed.pcap.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert run_here("scrub", str(packed), "-o", str(out)).code == 0
    assert out.stat().st_size == file.stat().st_size
    assert out.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_wrong_uses(tmp_path: Path) -> None:
    file = tmp_path / "in.pcap"
    file.write_bytes(Path(recorded("impl-go.pcap")).read_bytes())
    before = file.read_bytes()
    same = run_here("scrub", str(file), "-o", str(file))
    assert (same.code, file.read_bytes()) == (2, before)
    assert "the capture itself" in same.err
    assert run_here("scrub", str(file)).code == 2
    assert run_here("scrub", str(file), "-o", str(tmp_path)).code == 2
    assert run_here("scrub", str(file), "-o", str(tmp_path / "no" / "out")).code == 2
    assert run_here("scrub", str(tmp_path / "none"), "-o", str(tmp_path / "out")).code == 3
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"rubbish" * 100)
    assert run_here("scrub", str(rubbish), "-o", str(tmp_path / "out")).code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.pcap", "rubbish"], "nothing is left behind"


def test_a_difference_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grpcdiag.analyzer import scrub

    whole = scrub.Scrubbing.pieces

    def damaged(self: Any, progress: Any = None) -> Iterator[bytes]:
        yield b"".join(whole(self, progress)).replace(b"\0\0\0\0\x00\x05", b"\0\0\0\0\x00\x06")[:-300]

    monkeypatch.setattr(scrub.Scrubbing, "pieces", damaged)
    out = tmp_path / "out.pcap"
    done = invoke(["scrub", recorded("rpc-errors.pcap"), "-o", str(out)])
    assert done.exit_code == 1
    assert "not written: the analysis would differ in" in done.output
    assert list(tmp_path.iterdir()) == []


def test_tls_is_said_and_has_no_content(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    report = scrubbed([recorded("tls13-go.pcap")], out)
    told = "\n".join(notes(report))
    assert "1 connection (" in told
    assert "TLS" in told
    assert b"\x02h2" in out.read_bytes(), "ALPN's offer, which findings need"


HTTPS = RECORDED / "tls" / "https.pcap"


def records(capture: Path) -> list[tuple[int, bytes]]:
    """Times in nanoseconds and packets of a pcap file in this machine's byte order."""
    octets, at, found = capture.read_bytes(), 24, []
    unit = {0xA1B2C3D4: 1_000, 0xA1B23C4D: 1}[struct.unpack_from("<I", octets)[0]]
    while at < len(octets):
        seconds, fraction, length, _ = struct.unpack_from("<4I", octets, at)
        found.append((seconds * 10**9 + fraction * unit, octets[at + 16 : at + 16 + length]))
        at += 16 + length
    return found


@pytest.fixture
def beside_https(tmp_path: Path) -> Path:
    """gRPC recorded while HTTPS went over the same interface: both captures merged, as if begun at one time."""
    grpc, https = records(Path(recorded("impl-go.pcap"))), records(HTTPS)
    later = grpc[0][0] - https[0][0]
    merged = sorted([*grpc, *((time + later, packet) for time, packet in https)], key=lambda one: one[0])
    lines = (struct.pack("<4I", *divmod(time, 10**9), len(p), len(p)) + p for time, p in merged)
    file = tmp_path / "merged.pcap"
    file.write_bytes(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1) + b"".join(lines))
    return file


def test_https_beside_grpc_hinders_nothing_and_keeps_no_secret(beside_https: Path, tmp_path: Path) -> None:
    truth = json.loads(HTTPS.with_suffix("").with_suffix(".truth.json").read_text())
    out = tmp_path / "out.pcap"
    done = run_here("scrub", str(beside_https), "-o", str(out))
    assert (done.code, "same analysis" in done.err) == (0, True), done.err
    before, after = (json.loads(run_here("analyze", "--json", str(file)).out) for file in (beside_https, out))
    assert before["tls"] == after["tls"]
    told = [(one["version"], one["resumed"], one["offers_h2"]) for one in after["tls"]["connections"]]
    assert told == [(one["version"], one["resumed"], False) for one in truth["connections"]]
    secrets = [truth["server_name"].encode(), truth["alpn_offered"][1].encode(), b"ledger", b"\x0c\x03Lab"]
    assert all(secret in beside_https.read_bytes() for secret in secrets[:3])
    assert not [secret for secret in secrets if secret in out.read_bytes()]


@pytest.mark.parametrize("capture", [HTTPS, *(RECORDED / "tls" / f"{name}.pcap" for name in ("warm", "churn"))])
def test_no_octets_of_tls_survive_but_headers_and_hellos(capture: Path, tmp_path: Path) -> None:
    """Of twelve consecutive octets of a payload with few zeros none are written."""
    out = tmp_path / "out.pcap"
    report = scrubbed([str(capture)], out)
    assert list(differences(*analyses([str(capture)], [str(out)], report))) == []
    assert list(row_differences([str(capture)], [str(out)])) == []
    payloads, written = ([packet[66:] for _, packet in records(file)] for file in (capture, out))
    shown = {w for w in windows(payloads) & windows(written) if w.count(0) < 3}
    assert not {w for w in shown if b"http" not in w and b"tp/1.1" not in w}, "ALPN's names but for the private one"


def windows(payloads: Sequence[bytes]) -> set[bytes]:
    return {payload[at : at + 12] for payload in payloads for at in range(len(payload) - 11)}


def test_fragments_are_scrubbed_whole(tmp_path: Path) -> None:
    file = synthetic("fragments").file
    report = scrubbed([file], tmp_path / "out.pcap")
    assert report.fragments == 0
    assert not list(row_differences([file], [str(tmp_path / "out.pcap")]))
