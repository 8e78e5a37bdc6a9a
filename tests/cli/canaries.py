"""Captures with a text in every place where somebody may put one: scrubbed, none of them may be there."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Iterator, Sequence

import hpack
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, PadN
from scapy.layers.l2 import ARP, GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

WINDOW = 8
"""Octets in a row that are a piece of what was sent."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


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
        """Places of which eight octets in a row survive, as they are or Huffman-coded from any bit on."""
        kept = {written[at : at + WINDOW] for at in range(len(written) - WINDOW + 1)}
        for place, text in self.planted.items():
            if not kept.isdisjoint(_windows(text)):
                yield place


@functools.cache
def _windows(text: bytes) -> frozenset[bytes]:
    """Eight octets in a row of a canary, without those that all canaries share."""
    plain = {text[at : at + WINDOW] for at in range(6, len(text) - WINDOW + 1)}
    coded = hpack.Encoder().huffman_coder.encode(text[6:])
    bits, mask = int.from_bytes(coded), (1 << WINDOW * 8) - 1
    starts = range(7, len(coded) * 8 - WINDOW * 8 + 1)  # of the last octet up to seven bits are padding
    return frozenset(plain | {(bits >> shift & mask).to_bytes(WINDOW) for shift in starts})


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
    talk.say(
        0, frame(0, 0, 99, message(places.octets("stream-never-opened"))) + frame(0, 1, 5, places.octets("no-message"))
    )
    talk.say(0, frame(8, 0, 0, places.octets("wrong-length")) + frame(4, 0, 0, places.octets("half-a-setting")))
    talk.say(
        0, frame(1, 4, 7, places.octets("no-header-block")) + frame(9, 4, 7, places.octets("no-block-to-continue"))
    )
    talk.say(1, places.octets("reset"), "RA")
    return talk.packets


def web_request(places: Places, port: int) -> list[Packet]:
    """HTTP/2 that is no gRPC: path, headers and body are somebody's."""
    talk = Talk(places, port)
    coder = hpack.Encoder()
    talk.say(0, PREFACE + frame(4, 0, 0, b""))
    talk.say(1, frame(4, 0, 0, b""))
    path = "/" + places.text("web-path") + "/" + places.text("web-path-2")
    fields = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", places.text("web-authority"))]
    talk.say(0, frame(1, 5, 1, coder.encode([*fields, ("cookie", places.text("cookie"))])))
    answer = [
        (":status", "200"),
        ("content-type", "text/" + places.text("web-type")),
        ("server", places.text("server")),
    ]
    talk.say(1, frame(1, 4, 1, hpack.Encoder().encode(answer)))
    talk.say(1, frame(0, 1, 1, b"\0\0\0\0\4" + places.octets("web-body")))
    return talk.packets


def upgrade(places: Places, port: int) -> list[Packet]:
    """HTTP/1.1 that becomes h2c, with canaries in the fields that the upgrade itself needs."""
    talk = Talk(places, port)
    lines = ["POST /lab.v1.Lab/Echo HTTP/1.1", f"Host: {places.text('upgrade-host')}", "Upgrade: h2c"]
    lines += [f"Connection: Upgrade, HTTP2-Settings, {places.text('upgrade-connection')}", "HTTP2-Settings: AAMAAABk"]
    lines += [
        f"Content-Type: application/grpc;{places.text('upgrade-type')}",
        f"Upgrade-{places.text('upgrade-name')}: 1",
    ]
    body = message(places.octets("upgrade-body"))
    talk.say(0, "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
    talk.say(
        1, b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + frame(4, 0, 0, b"")
    )
    talk.say(0, PREFACE + frame(4, 0, 0, b""))
    answer = [(":status", "200"), ("content-type", "application/grpc"), ("x-own", places.text("upgrade-answer"))]
    talk.say(
        1, frame(1, 4, 1, hpack.Encoder().encode(answer)) + frame(0, 0, 1, message(places.octets("upgrade-message")))
    )
    return talk.packets


def tunnelled(places: Places) -> list[Packet]:
    """Headers around and in packets that somebody may write into, and packets that are not what they say."""
    ether = Ether(src="00:16:3e:11:22:33", dst="00:16:3e:44:55:66")
    host = {"src": "8.20.30.40", "dst": "8.20.30.41"}
    inside = IP(**host) / TCP(sport=9, dport=50_051, flags="A", seq=1) / Raw(places.octets("in-a-tunnel"))
    option, padding = places.octets("ip-option"), PadN(optdata=places.octets("ip6-option"))
    return [
        ether / IP(**host, options=[IPOption(b"\x9e" + bytes([len(option) + 2]) + option)]) / TCP(sport=9, dport=9),
        ether / IP(**host) / GRE(key_present=1, key=7) / inside,
        ether / IP(**host) / UDP(sport=5, dport=4789) / VXLAN(vni=7) / ether / inside,
        ether / IP(**host) / UDP(sport=5, dport=4789) / Raw(b"\x08" + places.octets("not-vxlan")),
        ether / IP(**host) / UDP(sport=5, dport=6081) / Raw(b"\0\0\x12\x34" + places.octets("not-geneve")),
        ether / IP(**host) / ICMP(type=3) / inside,
        ether / IPv6(src="2a01::1", dst="2a01::2") / IPv6ExtHdrDestOpt(options=padding) / TCP(),
        ether / IP(**host, flags="MF", proto=6) / Raw(places.octets("lone-fragment")),
        Ether(type=0x0800) / Raw(places.octets("not-ip")),
        Ether(type=0x86DD) / Raw(places.octets("not-ip6")),
        Ether(type=0x8847) / Raw(places.octets("not-mpls")),
        ether / IP(**host, proto=6) / Raw(b"\0" * 12 + b"\x10" + places.octets("not-tcp")),
        ether / Dot1Q(vlan=5) / IP(**host) / UDP(sport=1, dport=2) / Raw(places.octets("in-a-vlan")),
        ether / IP(**host) / TCP(sport=9, dport=9, dataofs=15) / Raw(b"\5\x24" + places.octets("wrong-option")),
    ]


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


def pcapng(places: Places, packets: Sequence[Packet | bytes], snaplen: int | None = None) -> bytes:
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
        block(0x40000BAD, struct.pack("<I", 32_473) + places.octets("custom-block-2")),
        block(9, b"__REALTIME_TIMESTAMP=1\n" + places.octets("journal")),
        block(5, struct.pack("<III", 0, 0, 0) + option(1, places.octets("statistics-comment")) + option(0, b"")),
        block(0x80000001, struct.pack("<I", 77) + places.octets("process-event")),
        block(0x7FFF, places.octets("unknown-block")),
    ]
    for number, packet in enumerate(packets):
        data = bytes(packet)[:snaplen]
        trailer = places.octets("ethernet-trailer") if number % 3 == 0 and snaplen is None else b""
        time = 1_700_000_000_000_000_000 + number * 1_000_000
        words = struct.pack("<IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(data + trailer), len(packet) + len(trailer))
        padded = data + trailer + bytes(-len(data + trailer) % 4)
        comment = option(1, places.octets("packet-comment"))
        comment += option(2989, struct.pack("<I", 32_473) + places.octets("own"))
        comment += option(3, b"\0" + places.octets("hash")) + option(0, b"")
        blocks.append(block(6, words + padded + comment))
    return b"".join(blocks)


def everything(places: Places) -> list[Packet]:
    """All of it."""
    talks = [*conversation(places, 40_000), *web_request(places, 44_000), *upgrade(places, 45_000)]
    return [*talks, *tunnelled(places), *other_traffic(places)]
