"""`grpcdiag verify`: both readings of recorded captures, its reports, exit codes and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from support import (
    RECORDED,
    RECORDINGS,
    SYNTHETICS,
    grpcdiag,
    recorded,
    recording,
    require_tool,
    run_here,
    synthetic,
)

from grpcdiag.analyzer.decode.decode import decode_rows
from grpcdiag.analyzer.verify import compare, records, wireshark
from grpcdiag.analyzer.verify.difference import Comparison
from grpcdiag.reports import verify

PCAP_HEADER = 24
RECORD_HEADER = 16
WIDE = os.environ.get("GRPCDIAG_VERIFY_ALL") == "1"
"""All captures, some of which take Wireshark ten seconds."""
SOON_READ = 200_000
"""Bytes of captures that are verified in every run."""
SYNTHETIC_SAMPLE = {
    "capture_hole",
    "duplicate_any",
    "failures-hole",
    "h2c_upgrade",
    "out_of_order_file",
    "rst_stream",
    "small-packets-quiet-bunched",
    "snaplen_96",
}


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_tool("tshark")
    pytest.importorskip("pyshark", reason="pyshark is not installed")


def soon_read(file: str) -> bool:
    alike = "rtt205" in file and "rtt205-go-16000" not in file
    return Path(file).parent == RECORDED and Path(file).stat().st_size < SOON_READ and not alike


def verified(*arguments: str, code: int = 0, stdin: bytes | None = None) -> dict[str, Any]:
    """The JSON report, valid against its schema."""
    command = ("--json", *arguments)
    outcome = run_here("verify", *command) if stdin is None else grpcdiag("verify", *command, stdin=stdin)
    assert (outcome.code, outcome.err) == (code, ""), outcome.err
    document: dict[str, Any] = json.loads(outcome.text)
    jsonschema.validate(document, verify.schema())
    return document


def rules(document: dict[str, Any]) -> dict[str | None, int]:
    told: dict[str | None, int] = {}
    for difference in document["differences"]:
        told[difference["rule"]] = told.get(difference["rule"], 0) + 1
    return told


def compared(file: str, keylog: str | None = None) -> Comparison:
    tables = decode_rows([file], **({"keylog": Path(keylog).read_bytes()} if keylog else {}))
    theirs = wireshark.read_wireshark(file, tables, keylog=keylog)
    return compare.compare(records.of_tables(tables), theirs)


SINGLE = [
    pytest.param(r.files[0], id=r.id) for r in RECORDINGS if len(r.files) == 1 and (WIDE or soon_read(r.files[0]))
]
MADE = [pytest.param(s.file, id=s.name) for s in SYNTHETICS if WIDE or s.name in SYNTHETIC_SAMPLE]


@pytest.mark.parametrize("file", [*SINGLE, *MADE])
def test_every_difference_is_explained(file: str) -> None:
    found = compared(file)
    assert [d for d in found.differences if d.why is None] == []
    assert {c.name for c in found.counts} >= {"connections", "packets", "frames", "streams", "gRPC statuses"}
    assert next(c.theirs for c in found.counts if c.name == "packets") > 0


def test_decrypted_frames_are_compared() -> None:
    found = compared(recorded("tls13-go.pcap"), recorded("tls13-go.keys"))
    counts = {c.name: (c.ours, c.theirs) for c in found.counts}
    assert (counts["frames"], counts["gRPC statuses"]) == ((688, 688), (100, 100))
    assert found.differences == ()


def test_what_differs_on_lost_packets_and_resets() -> None:
    assert rules(verified(recorded("deadline-exceeded.pcap"))) == {"reset": 20}
    assert rules(verified(recorded("too-many-pings.pcap"))) == {"connection-end": 1}
    assert rules(verified(synthetic("partial_overlap").file)) == {"recorded-before": 1}
    # Wireshark reads this file in its order
    by_order = {"file-order", "ack-recorded-first", "lost-place", "longer-than-all", "no-room"}
    assert set(rules(verified(synthetic("out_of_order_file").file))) == by_order


def test_the_report_lists_each_difference_with_its_packet_and_who_is_right() -> None:
    outcome = run_here("verify", recorded("deadline-exceeded.pcap"))
    assert (outcome.code, outcome.err) == (0, "")
    assert "20 differences, all explained" in outcome.text
    assert "20 statuses  reset  both are right" in outcome.text
    assert "#23  connection 0, stream 3: grpcdiag: DEADLINE_EXCEEDED; Wireshark: nothing" in outcome.text
    assert "... and 15 more: " in outcome.text
    assert "\x1b" not in outcome.text
    whole = run_here("verify", recorded("deadline-exceeded.pcap"), "--limit", "0").text
    assert whole.count("Wireshark: nothing") == 20
    assert "more:" not in whole


def test_a_capture_without_differences() -> None:
    outcome = run_here("verify", recorded("impl-go.pcap"))
    assert outcome.code == 0
    assert "no difference" in outcome.text
    counted = recording("impl-go").truth["raw_count"]["frames_by_type"]
    for name, number in counted.items():
        shown = next(line.split() for line in outcome.text.splitlines() if line.startswith(f"{name} "))
        assert shown == [name, str(number), str(number)]


def test_an_unexplained_difference_is_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tshark that leaves out packet 20 and says nothing of it."""
    script = "import os, sys; a = ['tcp && frame.number != 20' if x == 'tcp' else x for x in sys.argv[1:]]; "
    script += f"os.execv({require_tool('tshark')!r}, ['tshark', *a])"
    liar = tmp_path / "tshark"
    liar.write_text(f"#!{sys.executable}\n{script}\n")
    liar.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    document = verified(recorded("rtt205-go-14000.pcap"), code=1)
    unexplained = [d for d in document["differences"] if not d["explained"]]
    assert document["unexplained"] == len(unexplained) > 0
    assert unexplained[0]["packet"] == 20
    assert unexplained[0]["right"] is None
    assert "unexplained" in run_here("verify", recorded("rtt205-go-14000.pcap")).text


def test_standard_input_equals_the_file() -> None:
    data = Path(recorded("too-many-pings.pcap")).read_bytes()
    piped, named = verified("-", stdin=data), verified(recorded("too-many-pings.pcap"))
    assert piped.pop("files") == ["-"]
    named.pop("files")
    assert piped == named


def test_several_files_are_one_capture(tmp_path: Path) -> None:
    require_tool("mergecap")
    data = Path(recorded("impl-go.pcap")).read_bytes()
    middle = PCAP_HEADER
    for _ in range(40):
        middle += RECORD_HEADER + int.from_bytes(data[middle + 8 : middle + 12], "little")
    first, second = tmp_path / "a.pcap", tmp_path / "b.pcap"
    first.write_bytes(data[:middle])
    second.write_bytes(data[:PCAP_HEADER] + data[middle:])
    parts, whole = verified(str(second), str(first)), verified(recorded("impl-go.pcap"))
    assert parts["files"] == [str(first), str(second)]
    assert (parts["counts"], parts["differences"]) == (whole["counts"], whole["differences"])


def test_a_truncated_file_is_compared_up_to_its_damage() -> None:
    document = verified(recorded("truncated.pcap"))
    assert document["differences"] == []
    assert "cut short" in document["notes"][0]


def test_packets_behind_damage_are_explained(tmp_path: Path) -> None:
    """grpcdiag goes on behind a record header that is none; Wireshark stops there."""
    data = bytearray(Path(recorded("rtt205-go-14000.pcap")).read_bytes())
    at = PCAP_HEADER
    for _ in range(60):
        at += RECORD_HEADER + int.from_bytes(data[at + 8 : at + 12], "little")
    data[at + 8 : at + 16] = b"\xff" * 8
    damaged = tmp_path / "damaged.pcap"
    damaged.write_bytes(data)
    document = verified(str(damaged))
    behind = [d for d in document["differences"] if d["rule"] == "file-damage"]
    assert len(behind) > 10
    assert min(d["packet"] for d in behind) > 60


def test_no_capture_is_3_and_no_tcp_is_4(tmp_path: Path) -> None:
    text, none = tmp_path / "text.pcap", tmp_path / "none.pcap"
    text.write_text("No. Time Source Destination\n")
    none.write_bytes(Path(recorded("rpc-errors.pcap")).read_bytes()[:PCAP_HEADER])
    assert run_here("verify", str(text)).code == 3
    outcome = run_here("verify", str(none))
    assert (outcome.code, outcome.out) == (4, b"")
    assert "has no packets" in outcome.err


def test_without_tshark_it_says_what_to_install(tmp_path: Path) -> None:
    outcome = run_here("verify", recorded("impl-go.pcap"), env={"PATH": str(tmp_path)})
    assert (outcome.code, outcome.out) == (2, b"")
    assert "tshark is not installed" in outcome.err
    assert "apt install tshark" in outcome.err


def test_without_pyshark_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['pyshark'] = None; sys.modules['pyshark.tshark'] = None; "
    script += f"sys.argv[1:] = ['verify', {recorded('impl-go.pcap')!r}]; from grpcdiag.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install pyshark" in done.stderr


def test_output_file(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    outcome = run_here("verify", recorded("too-many-pings.pcap"), "--json", "-o", str(report))
    assert (outcome.code, outcome.out) == (0, b"")
    assert json.loads(report.read_text())["schema"] == "grpcdiag.verification/1"
