"""Scrubbed captures with packets missing, begun late or cut: what is not understood is not in them either."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from canaries import Places, Talk, conversation, everything, frame, message, pcapng
from scapy.packet import Packet
from support import recorded

from grpcdiag.analyzer.scrub import Scrubbing

KEY = bytes(range(32))


def scrubbed(file: Path) -> bytes:
    """The new file, of the methods too: a canary in one's place is a method's name."""
    return b"".join(Scrubbing([str(file)], key=KEY, hide_methods=True).pieces())


def survivors(places: Places, file: Path, packets: Sequence[Packet | bytes], snaplen: int | None = None) -> list[str]:
    """Canaries that are left of these packets."""
    file.write_bytes(pcapng(places, packets, snaplen))
    return list(places.survivors(scrubbed(file)))


def test_packets_missing_anywhere(tmp_path: Path) -> None:
    places = Places()
    packets = [bytes(packet) for packet in conversation(places, 40_000)]
    for missing in range(len(packets)):
        kept = packets[:missing] + packets[missing + 1 :]
        assert survivors(places, tmp_path / "in.pcapng", kept) == [], f"without packet {missing}"


def test_begun_late(tmp_path: Path) -> None:
    places = Places()
    packets = [bytes(packet) for packet in conversation(places, 40_000)]
    for first in range(1, len(packets)):
        assert survivors(places, tmp_path / "in.pcapng", packets[first:]) == [], f"from packet {first} on"


def test_cut_by_the_snaplen(tmp_path: Path) -> None:
    places = Places()
    packets = [bytes(packet) for packet in everything(places)]
    for snaplen in [*range(14, 140, 7), 200, 300, 500]:
        assert survivors(places, tmp_path / "in.pcapng", packets, snaplen) == [], f"cut at {snaplen}"


def test_bytes_sent_again_with_other_content(tmp_path: Path) -> None:
    """Structure is what its first copy was; a second one that differs brings nothing in."""
    places = Places()
    packets = conversation(places, 40_000)
    for nth, packet in enumerate(packets):
        payload = bytes(packet["TCP"].payload)
        if len(payload) < 60:
            continue
        other = packet.copy()
        other["TCP"].remove_payload()
        text = places.octets(f"again-{nth}")
        other = other / (text * (len(payload) // len(text) + 1))[: len(payload)]
        first = [*packets[:nth], other, *packets[nth:]]
        second = [*packets[: nth + 1], other, *packets[nth + 1 :]]
        for order in (first, second):
            assert survivors(places, tmp_path / "in.pcapng", order) == [], f"packet {nth} again"


def test_a_stream_from_before_the_capture_that_is_no_grpc(tmp_path: Path) -> None:
    """What looks like the beginning of messages in the middle of a body."""
    places = Places()
    talk = Talk(places)
    for nth in range(4):
        body = b"\0\0\0\0" + struct.pack(">B", 40) + places.octets(f"body-{nth}") + bytes(100)
        talk.say(0, frame(0, 0, 7, body) + frame(8, 0, 0, b"\0\0\1\0"))
        talk.say(1, frame(0, 0, 7, message(places.octets(f"whole-{nth}"))) + frame(8, 0, 7, b"\0\0\1\0"))
    assert survivors(places, tmp_path / "in.pcapng", talk.packets[3:]) == []


def test_secrets_in_the_file_are_dropped(tmp_path: Path) -> None:
    """With its secrets a TLS connection is read, not scrubbed: neither they nor records stay."""
    file = Path(recorded("tls13-go-secrets.pcapng"))
    before, after = file.read_bytes(), scrubbed(file)
    assert b"SERVER_TRAFFIC_SECRET_0" in before
    assert b"TRAFFIC_SECRET" not in after
    sent = {before[at : at + 8] for at in range(0, len(before) - 8, 8)} - _headers(before)
    left = sent & {after[at : at + 8] for at in range(len(after) - 7)}
    assert {octets for octets in left if len(set(octets)) == 8} == set()
    assert len(sent) > 20_000


def _headers(file: bytes) -> set[bytes]:
    """Eight octets in a row of what stays: record headers of the capture file, and TCP's and IP's, up to TLS."""
    kept, at = set(), 0
    while at < len(file):
        length = struct.unpack_from("<I", file, at + 4)[0]
        head = file[at : at + 28 + 90]
        kept |= {head[start : start + 8] for start in range(len(head) - 7)}
        at += length
    return kept
