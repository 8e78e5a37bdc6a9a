"""`grpcdiag scrub`: the same analysis, and nothing of what was sent."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hpack
import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw
from support import ALL_CAPTURES, grpcdiag, recorded, require_tool, synthetic

from grpcdiag.analyzer.scrubbing import Report, Scrubbing, analyses, row_differences
from grpcdiag.reports.scrub import differences, notes

KEY = bytes(range(32))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def scrubbed(files: Sequence[str], out: Path, *, hide_methods: bool = False) -> Report:
    """Writes the scrubbed capture without looking at it."""
    scrubbing = Scrubbing(files, key=KEY, hide_methods=hide_methods)
    out.write_bytes(b"".join(scrubbing.pieces()))
    return scrubbing.report()


@pytest.mark.parametrize("hide_methods", [False, True], ids=["methods", "hidden"])
@pytest.mark.parametrize("files", ALL_CAPTURES)
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


# --- canaries ---


def canary(place: str) -> str:
    """A text that is found whatever eight octets of it survive, and that could stand in a header field."""
    return "canary" + hashlib.sha256(place.encode()).hexdigest()[:30]


class Places:
    """Where canaries were put."""

    def __init__(self) -> None:
        self.planted: dict[str, bytes] = {}

    def text(self, place: str) -> str:
        """A canary for this place."""
        self.planted[place] = canary(place).encode()
        return canary(place)

    def octets(self, place: str) -> bytes:
        """The same as octets."""
        return self.text(place).encode()

    def survivors(self, written: bytes) -> Iterator[str]:
        """Places of which eight octets in a row survive, as they are or Huffman-coded from any of them on."""
        for place, text in self.planted.items():
            windows = [text[at : at + 8] for at in range(6, len(text) - 7)]
            coder = hpack.Encoder().huffman_coder
            windows += [coder.encode(text[at:])[1:9] for at in range(len(text) - 14)]
            if any(window in written for window in windows):
                yield place


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def message(payload: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(payload)) + payload


class Talk:
    """A TCP connection between two hosts, written packet by packet."""

    def __init__(self, places: Places, port: int = 40_000) -> None:
        self.places, self.port, self.packets = places, port, []
        self.next = [1_000, 2_000]
        for side, flags in ((0, "S"), (1, "SA"), (0, "A")):
            self.say(side, b"", flags)
            self.next[side] += "S" in flags

    packets: list[Packet]

    def say(self, side: int, payload: bytes, flags: str = "PA") -> None:
        hosts = ("8.20.30.40", "8.20.30.41")
        ports = (self.port, 50_051)
        options = [("NOP", None), ("Timestamp", (7, 8)), (253, self.places.octets("tcp-option")[:18])]
        ip = IP(src=hosts[side], dst=hosts[1 - side], id=len(self.packets) + 1)
        tcp = TCP(
            sport=ports[side],
            dport=ports[1 - side],
            seq=self.next[side],
            ack=self.next[1 - side] if "A" in flags else 0,
            flags=flags,
            options=options if payload else [],
        )
        ether = Ether(src="00:16:3e:11:22:33", dst="00:16:3e:44:55:66")
        self.packets.append(ether / ip / tcp / Raw(payload) if payload else ether / ip / tcp)
        self.next[side] += len(payload)


def conversation(places: Places, port: int) -> list[Packet]:
    """An RPC with canaries wherever somebody may put text."""
    talk = Talk(places, port)
    request, response = hpack.Encoder(), hpack.Encoder()
    own_settings = struct.pack(">HIHI", 4, 65_535, 0x1A2A, int.from_bytes(places.octets("setting")[:4], "big"))
    talk.say(0, PREFACE + frame(4, 0, 0, own_settings))
    talk.say(1, frame(4, 0, 0, b"") + frame(4, 1, 0, b""))
    for stream, huffman in ((1, True), (3, False), (5, True)):
        fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/lab.v1.Lab/Echo"),
            (":authority", places.text("authority")),
            ("te", "trailers"),
            ("content-type", "application/grpc+" + places.text("content-type")),
            ("user-agent", f"{places.text('agent')} grpc-go/1.85.0 ({places.text('agent-comment')})"),
            ("authorization", places.text("authorization")),
            (places.text("metadata-name"), places.text("metadata-value")),
            (f"x-{stream}", places.text(f"metadata-{stream}")),
            ("trace-bin", places.text("bin")),
        ]
        block = request.encode(fields, huffman=huffman)
        padded = bytes([40]) + struct.pack(">IB", 0, 15) + block[:30] + places.octets("padding").ljust(40, b"p")[:40]
        talk.say(0, frame(1, 0x08 | 0x20, stream, padded) + frame(9, 4, stream, block[30:]))
        payload = message(places.octets("request"))
        talk.say(0, frame(0, 0x08, stream, bytes([40]) + payload + places.octets("data-padding").ljust(40, b"p")[:40]))
        talk.say(0, frame(0, 1, stream, b""))
        talk.say(1, frame(1, 4, stream, response.encode([(":status", "200"), ("content-type", "application/grpc")])))
        talk.say(1, frame(0, 0, stream, message(places.octets("response") * 40)))
        trailers = [
            ("grpc-status", "5"),
            ("grpc-message", places.text("grpc-message")),
            ("grpc-status-details-bin", places.text("details")),
        ]
        talk.say(1, frame(1, 5, stream, response.encode(trailers, huffman=huffman)))
    talk.say(1, frame(6, 0, 0, places.octets("ping")[-8:]) + frame(0xC, 0, 0, places.octets("origin")))
    talk.say(0, frame(6, 1, 0, places.octets("ping")[-8:]) + frame(0x10, 0, 0, places.octets("priority-update")))
    talk.say(0, frame(0x42, 0, 0, places.octets("unknown-frame")))
    promise = response.encode([(":path", "/" + places.text("pushed")), (places.text("pushed-name"), "1")])
    talk.say(1, frame(5, 4, 5, struct.pack(">I", 2) + promise))
    talk.say(1, frame(7, 0, 0, struct.pack(">II", 5, 0) + places.octets("goaway")))
    talk.say(1, places.octets("reset"), "RA")
    return talk.packets


def other_traffic(places: Places) -> list[Packet]:
    """Packets and connections that are no gRPC."""
    ether = Ether(src="00:16:3e:11:22:33", dst="00:16:3e:44:55:66")
    inside = IP(src="8.20.30.40", dst="8.20.30.41")
    packets: list[Packet] = [
        ether / inside / UDP(sport=1, dport=53) / Raw(places.octets("udp")),
        ether / inside / ICMP() / Raw(places.octets("icmp")),
        ether / IPv6(src="2a01::1", dst="2a01::2") / UDP() / Raw(places.octets("udp6")),
        ether / ARP(psrc="8.20.30.40", pdst="8.20.30.41"),
        Ether(type=0x9999) / Raw(places.octets("ethertype")),
        ether / inside / TCP(sport=9, dport=9, flags="A") / Raw(places.octets("tcp-late")),
        ether / IP(src="8.20.30.40", dst="8.20.30.41", proto=200) / Raw(places.octets("ip-protocol")),
    ]
    http1 = Talk(places, 41_000)
    http1.say(0, b"GET /" + places.octets("http1-path") + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    http1.say(1, b"HTTP/1.1 200 OK\r\nX: " + places.octets("http1-header") + b"\r\n\r\n" + places.octets("http1-body"))
    unknown = Talk(places, 42_000)
    unknown.say(0, places.octets("unknown-protocol"))
    tls = Talk(places, 43_000)
    hello = places.octets("tls")
    tls.say(0, b"\x16\x03\x01" + struct.pack(">H", len(hello)) + hello + places.octets("tls-rest"))
    return [*packets, *http1.packets, *unknown.packets, *tls.packets]


def block(kind: int, body: bytes) -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def pcapng(places: Places, packets: Sequence[Packet]) -> bytes:
    """A file with canaries in comments, names, secrets and behind packets."""
    section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    section += option(1, places.octets("section-comment")) + option(2, places.octets("hardware"))
    interface = struct.pack("<HHI", 1, 0, 0) + option(2, places.octets("interface-name")) + option(9, b"\x09")
    interface += option(3, places.octets("interface-description")) + option(1, places.octets("interface-comment"))
    secrets = places.octets("secrets")
    name = struct.pack("<HH", 1, 4 + len(places.octets("name"))) + b"\x08\x14\x1e\x28" + places.octets("name")
    blocks = [
        block(0x0A0D0D0A, section),
        block(1, interface),
        block(10, struct.pack("<II", 0x544C534B, len(secrets)) + secrets),
        block(4, name + bytes(-len(name) % 4) + bytes(4)),
        block(0xBAD, struct.pack("<I", 32_473) + places.octets("custom-block")),
    ]
    for number, packet in enumerate(packets):
        data = bytes(packet)
        trailer = places.octets("ethernet-trailer") if number % 3 == 0 else b""
        time = 1_700_000_000_000_000_000 + number * 1_000_000
        words = struct.pack("<IIIII", 0, time >> 32, time & 0xFFFFFFFF, *[len(data + trailer)] * 2)
        padded = data + trailer + bytes(-len(data + trailer) % 4)
        comment = option(1, places.octets("packet-comment")) + option(0, b"")
        blocks.append(block(6, words + padded + comment))
    return b"".join(blocks)


@pytest.fixture
def planted(tmp_path: Path) -> tuple[Places, Path]:
    places = Places()
    packets = [*conversation(places, 40_000), *other_traffic(places)]
    file = tmp_path / "in.pcapng"
    file.write_bytes(pcapng(places, packets))
    return places, file


@pytest.mark.parametrize("options", [(), ("--hide-methods",)], ids=["methods", "hidden"])
def test_no_canary_survives(planted: tuple[Places, Path], tmp_path: Path, options: tuple[str, ...]) -> None:
    places, file = planted
    assert len(places.planted) > 40
    assert set(places.survivors(file.read_bytes())) >= set(places.planted) - {"tcp-option", "ping", "setting"}
    out = tmp_path / "out.pcapng"
    outcome = grpcdiag("scrub", str(file), "-o", str(out), *options)
    assert (outcome.code, outcome.out) == (0, b""), outcome.err
    written = out.read_bytes()
    assert list(places.survivors(written)) == []
    for host in ("8.20.30.40", "8.20.30.41", "2a01::1"):
        assert host not in outcome.err
    assert bytes([8, 20, 30, 40]) not in written
    assert bytes.fromhex("00163e112233") not in written
    for report in (("--json",), (), ("--format", "json")):
        told = grpcdiag("analyze", str(out), *report)
        assert told.code == 0
        assert list(places.survivors(told.out + told.err.encode())) == []
        assert ("lab.v1.Lab/Echo" in told.text) == (not options)
    assert "grpc-go/1.85.0" in told.text
    assert "NOT_FOUND" in told.text
    assert "1 connection is" in outcome.err
    assert "TLS" in outcome.err
    assert "of other protocols than TCP" in outcome.err


def test_checksums_are_right_and_wireshark_reads_it(planted: tuple[Places, Path], tmp_path: Path) -> None:
    tshark = require_tool("tshark")
    import subprocess

    out = tmp_path / "out.pcapng"
    assert grpcdiag("scrub", str(planted[1]), "-o", str(out)).code == 0
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
        assert grpcdiag("scrub", recorded("impl-cpp.pcap"), "-o", str(out), "--hide-methods", "--quiet").err == ""
    analyses_ = [json.loads(grpcdiag("analyze", "--json", str(out)).out) for out in outs]
    names = [{method["method"] for method in document["methods"]} for document in analyses_]
    before = json.loads(grpcdiag("analyze", "--json", recorded("impl-cpp.pcap")).out)
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
    assert grpcdiag("scrub", str(packed), "-o", str(out)).code == 0
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
    same = grpcdiag("scrub", str(file), "-o", str(file))
    assert (same.code, file.read_bytes()) == (2, before)
    assert "the capture itself" in same.err
    assert grpcdiag("scrub", str(file)).code == 2
    assert grpcdiag("scrub", str(file), "-o", str(tmp_path)).code == 2
    assert grpcdiag("scrub", str(file), "-o", str(tmp_path / "no" / "out")).code == 2
    assert grpcdiag("scrub", str(tmp_path / "none"), "-o", str(tmp_path / "out")).code == 3
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"rubbish" * 100)
    assert grpcdiag("scrub", str(rubbish), "-o", str(tmp_path / "out")).code == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.pcap", "rubbish"], "nothing is left behind"


def test_a_difference_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from grpcdiag.analyzer import scrubbing
    from grpcdiag.cli import app

    whole = scrubbing.Scrubbing.pieces

    def damaged(self: Any, progress: Any = None) -> Iterator[bytes]:
        yield b"".join(whole(self, progress)).replace(b"\0\0\0\0\x00\x05", b"\0\0\0\0\x00\x06")[:-300]

    monkeypatch.setattr(scrubbing.Scrubbing, "pieces", damaged)
    out = tmp_path / "out.pcap"
    done = CliRunner().invoke(app, ["scrub", recorded("rpc-errors.pcap"), "-o", str(out)])
    assert done.exit_code == 1
    assert "not written: the analysis would differ in" in done.output
    assert list(tmp_path.iterdir()) == []


def test_tls_is_said_and_has_no_content(tmp_path: Path) -> None:
    out = tmp_path / "out.pcap"
    report = scrubbed([recorded("tls13-go.pcap")], out)
    told = "\n".join(notes(report))
    assert "1 connection is" in told
    assert "TLS" in told
    assert b"\x02h2" not in out.read_bytes(), "ALPN's names are in the hello, as is the server's"


def test_fragments_are_scrubbed_whole(tmp_path: Path) -> None:
    file = synthetic("fragments").file
    report = scrubbed([file], tmp_path / "out.pcap")
    assert report.fragments == 0
    assert not list(row_differences([file], [str(tmp_path / "out.pcap")]))
