"""`grpcdiag annotate`: the same packets with comments, as other programs read them."""

from __future__ import annotations

import gzip
import random
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from canaries import Places, everything, pcapng
from guises import Packets
from support import grpcdiag, recorded, require_tool, run_here

from grpcdiag.analyzer.analysis import of_capture
from grpcdiag.analyzer.decode.annotate import Annotating
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.cli.annotate import PROFILE
from grpcdiag.fixtures.synthetic.packet import Captured
from grpcdiag.reports.shared.causes import MEANINGS
from grpcdiag.reports.wireshark import comments
from grpcdiag.reports.wireshark.comments import LONGEST, LOOK_AT, OF_A_PACKET, list_comments

STALLS = "rtt205-go-16000.pcap"
WORDS = {6: 20, 2: 20}
"""Bytes before the packet in blocks with options: Enhanced and Obsolete Packet Blocks."""


def annotate(files: Sequence[str | Path], out: Path, *options: str) -> str:
    outcome = run_here("annotate", *map(str, files), "-o", str(out), *options)
    assert (outcome.code, outcome.out) == (0, b""), outcome.err
    return outcome.err


def tshark(file: Path | str, *options: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [require_tool("tshark"), "-r", str(file), *options], capture_output=True, text=True, timeout=300, env=env
    )
    assert done.returncode == 0 or "cut short in the middle of a packet" in done.stderr, done.stderr
    return done.stdout


def packets(file: Path | str) -> tuple[int, list[Captured]]:
    """The link type, and time, length and bytes of every packet, as Wireshark reads them."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.pcap"
        command = [require_tool("editcap"), "-F", "nsecpcap", str(file), str(copy)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 or "cut short in the middle of a packet" in done.stderr, done.stderr
        read = Packets(copy)
    return read.link_type, read.all


def dissected(file: Path | str) -> str:
    """The same of a capture with secrets, which Wireshark 4.0 cannot copy."""
    fields = ("frame.number", "frame.time_epoch", "frame.len", "frame.cap_len", "frame.encap_type")
    return tshark(file, "-x") + tshark(file, "-T", "fields", *(f"-e{field}" for field in fields))


def count(file: Path | str) -> int:
    """How many packets Wireshark finds in a file."""
    command = [require_tool("capinfos"), "-Tmrc", str(file)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(told.rpartition(",")[2])


def comments_of(file: Path | str) -> dict[int, str]:
    lines = tshark(file, "-Y", 'frame.comment contains "grpcdiag"', "-Tfields", "-eframe.number", "-eframe.comment")
    return {int(number): text for number, text in (line.split("\t") for line in lines.splitlines())}


def blocks(data: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Byte order, type and body of each block."""
    at, order = 0, "<"
    while at < len(data):
        if data[at : at + 4] == b"\n\r\r\n":
            order = "<" if data[at + 8 : at + 12] == bytes.fromhex("4d3c2b1a") else ">"
        kind, length = struct.unpack_from(f"{order}II", data, at)
        assert struct.unpack_from(f"{order}I", data, at + length - 4) == (length,)
        yield order, kind, data[at + 8 : at + length - 4]
        at += length
    assert at == len(data)


def without_comments(data: bytes) -> list[tuple[str, int, bytes]]:
    """The blocks without grpcdiag's comments and lengths of sections."""
    found = []
    for order, kind, body in blocks(data):
        if kind == 0x0A0D0D0A:
            body = body[:8] + bytes(8) + body[16:]
        elif kind in WORDS:
            captured = struct.unpack_from(f"{order}I", body, 12)[0]
            at = WORDS[kind] + captured + -captured % 4
            end = at
            while body[end + 4 : end + 12] == b"grpcdiag":
                code, length = struct.unpack_from(f"{order}HH", body, end)
                assert code == 1
                end += 4 + length + -length % 4
            rest = body[end:]
            body = body[:at] + (b"" if end > at and rest == bytes(4) else rest)
        found.append((order, kind, body))
    return found


def test_the_length_of_frame_check_sequences_is_kept(tmp_path: Path) -> None:
    """A pcap header gives it for all packets (here 4 octets), pcapng with each packet (epb_flags, bits 5 to 8)."""
    data = bytearray(Path(recorded("rpc-errors.pcap")).read_bytes())
    for word, flags in ((1, []), (1 | 1 << 26 | 2 << 29, [4 << 5])):
        data[20:24] = struct.pack("<I", word)
        (tmp_path / "in.pcap").write_bytes(data)
        written = b"".join(Annotating([str(tmp_path / "in.pcap")], [(1, "grpcdiag")]).pieces())
        bodies = [body for _, kind, body in blocks(written) if kind == 6]
        assert [struct.unpack("<HHII", body[-12:])[2] for body in bodies if body[-12:-8] == b"\2\0\4\0"] == (
            flags * len(bodies)
        )
        assert b"grpcdiag" in bodies[0]


@pytest.mark.parametrize("name", [STALLS, "any.pcap", "truncated.pcap", "tls13-go-secrets.pcapng"])
def test_the_same_packets(name: str, tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    said = annotate([recorded(name)], out)
    same = dissected if name.endswith(".pcapng") else packets
    assert same(out) == same(recorded(name))
    assert f"{count(out):,} packets, {len(comments_of(out)):,} with comments" in said
    if name.endswith(".pcapng"):
        assert without_comments(out.read_bytes()) == without_comments(Path(recorded(name)).read_bytes())
    before, after = (run_here("analyze", str(file), "--json").text for file in (recorded(name), out))
    counts = [re.search(r'"totals":.*?\}', re.sub(r"\s", "", text)) for text in (before, after)]
    assert counts[0] and counts[1] and counts[0][0] == counts[1][0]


def test_every_piece_of_evidence_and_every_blocked_interval_has_a_comment(tmp_path: Path) -> None:
    file, out = recorded(STALLS), tmp_path / "out.pcapng"
    annotate([file], out)
    found, tables = comments_of(out), decode([file], rpc_rows=False)
    findings = of_capture([file], tables).findings
    assert findings
    for finding in findings:
        for item in finding.evidence:
            assert f"grpcdiag {finding.id} ({finding.severity}): {item.what}" in found[item.packet]
    assert len(tables.waits.duration_ns) == 5
    for stop, resume in zip(tables.waits.stopped_at_packet, tables.waits.resumed_at_packet, strict=True):
        assert f"until packet {resume}, 205 ms: congestion_window (blocked by TCP congestion control)" in found[stop]
        assert f"grpcdiag resume: the client sends again after 205 ms, since packet {stop}" in found[resume]
    assert {*found} == {*(number for number, _ in list_comments(of_capture([file], tables), tables))}


def test_a_capture_without_findings_has_no_comments(tmp_path: Path) -> None:
    annotate([recorded("tls13-go-secrets.pcapng")], tmp_path / "out.pcapng")
    assert comments_of(tmp_path / "out.pcapng") == {}


def pcap(order: str, magic: int, number: int, fraction: int) -> bytes:
    """A pcap file of small packets, in either byte order."""
    data = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, 1)]
    data += (struct.pack(f"{order}IIII", 1_700_000_000 + n, fraction, 60, 99) + bytes([n]) * 60 for n in range(number))
    return b"".join(data)


@pytest.mark.parametrize(("order", "magic", "fraction"), [("<", 0xA1B23C4D, 123_456_789), (">", 0xA1B2C3D4, 999_999)])
def test_pcap_of_either_order_and_resolution(order: str, magic: int, fraction: int, tmp_path: Path) -> None:
    plain, out = tmp_path / "in.pcap", tmp_path / "out.pcapng"
    plain.write_bytes(pcap(order, magic, 5, fraction))
    packed = tmp_path / "in.pcap.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    results = []
    for file in (plain, packed):
        written = Annotating([str(file)], [(3, "grpcdiag 1"), (3, "grpcdiag 2"), (5, "grpcdiag 3")])
        results.append(b"".join(written.pieces()))
        assert (written.packets, written.commented, written.without_room) == (5, 2, 0)
    assert results[0] == results[1]
    out.write_bytes(results[0])
    assert packets(out) == packets(plain)
    assert comments_of(out) == {3: "grpcdiag 1,grpcdiag 2", 5: "grpcdiag 3"}


def section(order: str, length: int, *more: bytes) -> bytes:
    """A section with one interface, in either byte order."""
    head = struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, length)
    return turned(order, 0x0A0D0D0A, head) + turned(order, 1, struct.pack(f"{order}HHI", 1, 0, 0)) + b"".join(more)


def turned(order: str, kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + length + body + length


def packet(order: str, kind: int, *options: bytes) -> bytes:
    data = bytes(range(61))
    if kind == 3:
        return turned(order, 3, struct.pack(f"{order}I", 61) + data)
    first = struct.pack(f"{order}I", 0) if kind == 6 else struct.pack(f"{order}HH", 0, 7)
    return turned(
        order, kind, first + struct.pack(f"{order}IIII", 391_000, 5, 61, 99) + data + bytes(3) + b"".join(options)
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_blocks_of_pcapng_stay(order: str, tmp_path: Path) -> None:
    """Packets with and without options, of all three types; statistics and secrets behind the last packet."""
    comment = struct.pack(f"{order}HH", 1, 5) + b"other" + bytes(3) + bytes(4)
    secrets = turned(order, 10, struct.pack(f"{order}II", 0x544C534B, 8) + b"CLIENT_R")
    statistics = turned(order, 5, struct.pack(f"{order}III", 0, 0, 0))
    some = [
        packet(order, kind, *options) for kind in (6, 2, 3) for options in ((), (comment,)) if kind != 3 or not options
    ]
    whole = section(order, sum(map(len, some)), *some) + secrets + statistics + section("<", -1, packet("<", 6))
    file, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    file.write_bytes(whole)
    written = Annotating([str(file)], [(number, f"grpcdiag {'é' * number}") for number in range(1, 7)])
    out.write_bytes(b"".join(written.pieces()))
    assert (written.packets, written.commented, written.without_room) == (6, 5, 1)
    assert without_comments(out.read_bytes()) == without_comments(whole)
    assert packets(out) == packets(file)
    found = comments_of(out)
    assert found == {
        1: "grpcdiag é",
        2: "grpcdiag éé,other",
        3: "grpcdiag ééé",
        4: "grpcdiag éééé,other",
        6: f"grpcdiag {'é' * 6}",
    }


def test_names_secrets_and_comments_stay(tmp_path: Path) -> None:
    """All blocks of a file with a text in every place where there may be one."""
    places = Places()
    data = pcapng(places, everything(places))
    file, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    file.write_bytes(data)
    annotate([file], out)
    assert without_comments(out.read_bytes()) == without_comments(data)


def test_several_files_and_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "out.pcapng"
    files = [recorded("impl-go.pcap"), recorded(STALLS)]
    annotate(files, out)
    merged = tmp_path / "merged.pcapng"
    in_order = sorted(files, key=lambda file: packets(file)[1][0].time_ns)
    subprocess.run([require_tool("mergecap"), "-a", "-w", str(merged), *in_order], check=True)
    fields = ["-Tfields", "-eframe.number", "-eframe.time_epoch", "-eframe.len"]
    assert tshark(out, *fields) == tshark(merged, *fields)
    piped = tmp_path / "piped.pcapng"
    assert grpcdiag("annotate", "-", "-o", str(piped), stdin=Path(recorded(STALLS)).read_bytes()).code == 0
    annotate([recorded(STALLS)], out)
    assert piped.read_bytes() == out.read_bytes()


def test_editcap_reads_it_and_finds_the_comments(tmp_path: Path) -> None:
    out, copy = tmp_path / "out.pcapng", tmp_path / "copy.pcapng"
    annotate([recorded(STALLS)], out)
    subprocess.run([require_tool("editcap"), str(out), str(copy)], check=True)
    assert comments_of(copy) == comments_of(out) != {}
    again = tmp_path / "again.pcapng"
    annotate([out], again)
    assert packets(again) == packets(out)


def test_comments_are_bounded_and_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    file = recorded(STALLS)
    tables = decode([file], rpc_rows=False)
    analysis = of_capture([file], tables)
    monkeypatch.setattr(comments, "MEANINGS", MEANINGS | {"congestion_window": "x\x1b[31m" * 1000})
    assert max(len(text) for _, text in list_comments(analysis, tables)) == LONGEST
    monkeypatch.setattr(comments, "OF_A_PACKET", 1)
    found = list_comments(analysis, tables)
    assert all(text.isprintable() and text.startswith("grpcdiag") for _, text in found)
    assert any(text == "grpcdiag: 1 more comment on this packet" for _, text in found)
    numbers = [number for number, _ in found]
    assert max(map(numbers.count, numbers)) == 2
    monkeypatch.setattr(comments, "INTERVALS", 2)
    assert comments.count_uncommented(tables) == 3
    assert len(list_comments(analysis, tables)) < len(found)
    assert OF_A_PACKET * LONGEST < 65_536, "as much fits an option"


def test_what_to_look_at_names_causes() -> None:
    assert {*LOOK_AT} <= {*MEANINGS}


@pytest.mark.parametrize("seed", range(10))
def test_damaged_files_give_whole_ones(seed: int, tmp_path: Path) -> None:
    """Whatever is damaged, Wireshark reads what is written, and grpcdiag reads as many packets as before."""
    chance = random.Random(seed)
    whole = [bytearray(Path(recorded(name)).read_bytes()) for name in ("impl-go.pcap", "tls13-go-secrets.pcapng")]
    data = whole[seed % 2]
    for _ in range(6):
        data[chance.randrange(30, len(data))] ^= 1 << chance.randrange(8)
    data = data[: chance.randrange(len(data) // 2, len(data))]
    file, out = tmp_path / "in", tmp_path / "out.pcapng"
    file.write_bytes(data)
    written = Annotating([str(file)], [(number, "grpcdiag") for number in range(1, 1000)])
    out.write_bytes(b"".join(written.pieces()))
    before, after = (decode([str(one)], rpc_rows=False).capture["packets"] for one in (file, out))
    assert written.packets == before == after == count(out)
    assert sum(1 for _ in blocks(out.read_bytes())) >= before


def test_nothing_is_written_when_it_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "in.pcap"
    file.write_bytes(Path(recorded(STALLS)).read_bytes())
    before = file.read_bytes()
    for output, code, why in (
        (file, 2, "the capture itself"),
        (tmp_path, 2, "a folder"),
        (tmp_path / "a" / "b", 2, "cannot write"),
    ):
        outcome = run_here("annotate", str(file), "-o", str(output))
        assert outcome.code == code
        assert why in outcome.err
    empty = tmp_path / "empty"
    empty.write_bytes(b"nothing")
    assert run_here("annotate", str(empty), "-o", str(tmp_path / "out")).code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "in.pcap"]
    assert file.read_bytes() == before


def test_a_capture_without_grpc(tmp_path: Path) -> None:
    """Its findings are comments as well; without any nothing is written."""
    out = tmp_path / "out.pcapng"
    file = tmp_path / "in.pcap"
    file.write_bytes(pcap("<", 0xA1B2C3D4, 5, 0))
    outcome = run_here("annotate", str(file), "-o", str(out))
    assert outcome.code == 4
    assert not out.exists()


def test_the_profile_colours_what_is_commented(tmp_path: Path) -> None:
    out, folder = tmp_path / "out.pcapng", tmp_path / "profiles" / "grpcdiag"
    annotate([recorded(STALLS)], out, "--profile", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == sorted(PROFILE)
    env = {"WIRESHARK_CONFIG_DIR": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    fields = ["-Tfields", "-eframe.number", "-eframe.coloring_rule.name"]
    rules = dict(line.split("\t") for line in tshark(out, "-C", "grpcdiag", "--color", *fields, env=env).splitlines())
    found = comments_of(out)
    for number, rule in rules.items():
        text = found.get(int(number), "")
        severity = next((f"grpcdiag {word}" for word in ("critical", "warning", "info") if f"({word}): " in text), "")
        assert rule == severity or rule == next((f"grpcdiag {w}" for w in ("stop", "resume") if f"{w}:" in text), "")
    assert {"grpcdiag critical", "grpcdiag info"} <= {*rules.values()}
    assert "grpcdiag slow-start-after-idle" in tshark(out, "-C", "grpcdiag", env=env), "the column with the comments"
    for line in (folder / "dfilter_buttons").read_text().splitlines():
        button = re.fullmatch(r'"TRUE","[^"]+","((?:[^"\\]|\\.)+)","[^"]*"', line)
        assert button
        assert tshark(out, "-Y", re.sub(r"\\(.)", r"\1", button[1]), env=env)
