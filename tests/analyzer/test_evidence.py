"""Each packet that a finding names is there, at that time, and is what the finding says."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from support import RECORDED, REPOSITORY, SYNTHETICS

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.decode.runner import Run
from grpcdiag.analyzer.model.analysis import Analysis
from grpcdiag.analyzer.model.finding import Evidence
from grpcdiag.reports.shared.sentences import describe_cost

FIN, SYN, RST, ACK = 1, 2, 4, 16
FLAGS = (
    (r"^(first )?SYN of", SYN, ACK),
    (r"^SYN-ACK", SYN | ACK, 0),
    (r"^FIN |\(FIN\)", FIN, 0),
    (r"^RST |^(?!SYN).*\(RST", RST, 0),
    (r"^(the )?ACK |report.*\(SACK\)", ACK, SYN),
)
"""What begins so, and the TCP flags that its packet has and has not."""
FRAMES = (
    (r"^a PING|PING \(|^PING of|carry only PINGs|acknowledgement of (a|the) PING", "PING"),
    (r"^GOAWAY", "GOAWAY"),
    (r"^RST_STREAM", "RST_STREAM"),
    (r"^HTTP status|^HEADERS|begins \(connection|first RPC of|RPC begins", "HEADERS"),
    (r"^SETTINGS of", "SETTINGS"),
    (r"carry only WINDOW_UPDATEs", "WINDOW_UPDATE"),
)
"""The frame that a packet has in which something is."""
NOTES = ((r"retransmits|^retransmission|are retransmitted", "retransmission"),)
"""How the analysis classifies a packet."""
SENDER = re.compile(
    r"^(client|server) \S+ (?:stops|resumes|sends|retransmits|goes on|is still)"
    r"|(?<!no )(?<!ACK of )(?:bytes|data|packet|PING|PING \(\w+\)|FIN|RST|GOAWAY.*|SETTINGS)"
    r" (?:of|from) (?:the )?(client|server)\b"
)
"""The side that sent the packet."""
CAPTURES = sorted(path for path in RECORDED.rglob("*.pcap*") if ".grpcdiag" not in path.name)
CAPTURES += [Path(s.file) for s in SYNTHETICS if s.truth.get("findings")]
MISTAKES = (
    (Evidence(1, 0, "SYN of 10.0.0.1:1: connection 0"), "time"),
    (Evidence(2, 0, "SYN of 10.0.0.1:1: connection 0"), "SYN of"),
    (Evidence(1, 0, "client 10.0.0.1 retransmits for the first time"), "retransmi"),
    (Evidence(1, 0, "PING (bdp) of client 10.0.0.1"), "PING"),
    (Evidence(1, 0, "the last bytes of server 10.0.0.2"), "sent by server"),
)
"""Evidence that no capture proves, each with the complaint."""


FAILURES = {"cancelled", "connect-failure", "deadline-exceeded", "lost-answer", "proxy-error", "rpc-errors"}
"""Findings about calls or connections that failed."""


class Decoded:
    """The packets of a capture, and the types of the frames that begin or end in each."""

    def __init__(self, path: Path) -> None:
        run = Run([str(path)], frames=True, packets=True)
        self.packets: dict[int, dict[str, int]] = {}
        self.frames: dict[int, set[str]] = defaultdict(set)
        self.framed: set[int] = set()
        for take in run.read(None, None):
            packets, frames = take("packets"), take("frames")
            names = ("time_ns", "connection", "direction", "flags", "note")
            rows = zip(packets["packet"].tolist(), *(packets[name].tolist() for name in names), strict=True)
            self.packets |= {number: dict(zip(names, row, strict=True)) for number, *row in rows}
            self.framed |= set(frames["connection"].tolist())
            for end in ("first_packet", "last_packet"):
                for number, kind in zip(frames[end].tolist(), frames["kind"].tolist(), strict=True):
                    self.frames[number].add(_core.FRAME_TYPES[kind] if kind < len(_core.FRAME_TYPES) else "UNKNOWN")

    def complain(self, item: Evidence) -> list[str]:
        """Say what of a piece of evidence its packet does not prove."""
        packet = self.packets.get(item.packet)
        if packet is None:
            return [] if item.what.startswith("DNS ") or "(ICMP" in item.what else ["no TCP packet"]
        wrong = [] if packet["time_ns"] == item.time_ns else ["another time"]
        for pattern, has, has_not in FLAGS:
            if re.search(pattern, item.what) and (packet["flags"] & (has | has_not)) != has:
                wrong.append(f"flags {packet['flags']:#x}, not {pattern}")
        for pattern, name in NOTES if not packet["flags"] & FIN else ():  # without bytes it has no note
            if re.search(pattern, item.what) and _core.PACKET_NOTES[packet["note"]] != name:
                wrong.append(f"{_core.PACKET_NOTES[packet['note']]}, not {name}")
        for pattern, name in FRAMES if packet["connection"] in self.framed else ():
            if re.search(pattern, item.what) and name not in self.frames[item.packet]:
                wrong.append(f"frames {self.frames[item.packet]}, no {name}")
        if found := SENDER.search(item.what):
            side = found[1] or found[2]
            wrong += [] if ("client", "server")[packet["direction"]] == side else [f"not sent by {side}"]
        return wrong


def analysed(path: Path) -> Analysis | None:
    try:
        return analyze([str(path)])
    except NoGrpcError as error:
        return error.analysis


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=str(path.relative_to(REPOSITORY / "fixtures"))) for path in CAPTURES]
)
def test_each_packet_is_what_the_finding_says(path: Path) -> None:
    analysis = analysed(path)
    if analysis is None or not analysis.findings:
        return
    decoded = Decoded(path)
    for text in (analysis.verdict.text, *(finding.explanation for finding in analysis.findings)):
        assert not text[0].islower() and text.endswith("."), text
    for finding in analysis.findings:
        assert finding.id not in FAILURES or "no latency cost" not in describe_cost(finding)
        for item in finding.evidence:
            assert decoded.complain(item) == [], (finding.id, item)
            number = None if item.what.startswith("DNS ") else decoded.packets.get(item.packet, {}).get("connection")
            assert number is None or not finding.scope.connections or number in finding.scope.connections, finding.id


@pytest.mark.parametrize(("item", "why"), MISTAKES)
def test_a_mistake_is_seen(item: Evidence, why: str) -> None:
    """The first packets of this capture are a SYN and a SYN-ACK."""
    decoded = Decoded(RECORDED / "rpc-errors.pcap")
    assert any(why in complaint for complaint in decoded.complain(item)), decoded.complain(item)
    right = Evidence(1, decoded.packets[1]["time_ns"], "SYN of 10.78.0.1:1: connection 0")
    assert decoded.complain(right) == []


def test_an_idle_time_begins_after_its_packet() -> None:
    """The client can have a response later than it was captured."""
    path = RECORDED / "lab" / "client-idle-gap.pcap.gz"
    packets, idles = Decoded(path).packets, decode([str(path)]).idles
    assert idles.before_time_ns.tolist() == [packets[number]["time_ns"] for number in idles.before_packet.tolist()]
    assert (idles.start_time_ns > idles.before_time_ns).any()


def test_a_blocked_interval_may_begin_after_its_packet() -> None:
    """A stream whose connection was blocked before waits behind other streams from the end of that."""
    path = RECORDED / "lab" / "connection-window-stall.pcap.gz"
    packets, waits = Decoded(path).packets, decode([str(path)]).waits
    assert waits.stopped_time_ns.tolist() == [packets[n]["time_ns"] for n in waits.stopped_at_packet.tolist()]
    later = waits.start_time_ns > waits.stopped_time_ns
    assert [_core.CAUSES[cause] for cause in waits.cause[later].tolist()] == ["head_of_line"]
