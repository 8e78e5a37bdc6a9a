"""The timeline: exact text of three, its figures against the tables, folding, widths, all captures."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from support import RECORDINGS, SNAPSHOTS, SYNTHETICS, recorded, recording

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.selection.selection import Selection
from grpcdiag.analyzer.views.events import BURST, LIMITS, RETRANSMISSION, SILENCE, Step, in_flight, sequence, steps
from grpcdiag.analyzer.views.excerpt import excerpt, slowest
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.wire import Link
from grpcdiag.reports import timeline

LOSS_RECOVERY = _core.CAUSES.index("loss_recovery")

MS = 1_000_000
RTT205 = "rtt205-go-16000.pcap"


def drawn(name: str, stream: int | None = None, *, width: int = 100, limit: int = 200) -> str:
    return timeline.render(excerpt([recorded(name)], 0, stream=stream), width=width, limit=limit)


@pytest.mark.parametrize(
    ("name", "stream"), [("rtt205-go-16000", 3), ("impl-java", None), ("max-concurrent-streams", None)]
)
def test_snapshot(name: str, stream: int | None, update_snapshots: bool) -> None:
    text = drawn(f"{name}.pcap", stream, width=80)
    path = SNAPSHOTS / f"timeline-{name}{'' if stream is None else f'-{stream}'}.txt"
    if update_snapshots:
        path.write_text(text)
    assert text == path.read_text(), "to accept the new text: pytest --update-snapshots"


def test_a_reader_sees_the_congestion_window_of_a_call() -> None:
    """Ten segments leave, nothing for a round trip, an ACK, the rest: with the packets that tshark shows."""
    lines = drawn(RTT205, 3).splitlines()
    first = next(n for n, line in enumerate(lines) if "#45-54" in line)
    told = " ".join(" ".join(lines[first : first + 8]).split())
    assert "HEADERS[3] DATA[3].. (10 packets, 14,080 B)" in told
    assert "BLOCKED 205 ms: congestion_window" in told
    assert "client still has to send 1,954 B; in flight 14,080, congestion window 14,080" in re.sub(
        r"[|!] ?", "", told
    ).replace("  ", " ")
    assert "stopped #54 -> released by #55 -> resumed #56" in told
    assert "..DATA[3] END (2 packets, 1,954 B)" in told
    text = " ".join("\n".join(lines).split())
    assert "RPC 3 starts: /lab.v1.Lab/Echo" in text
    assert "RPC 3 ends: OK after 411 ms" in text
    assert "[5]" not in text


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("name", ["rtt205-go-16000", "rpc-errors", "impl-java", "max-concurrent-streams"])
def test_no_line_is_wider_than_asked(name: str, width: int) -> None:
    lines = drawn(f"{name}.pcap", width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert sum(len(line) == width for line in lines) > 20, "the lanes use the width there is"


def test_colour_adds_nothing_but_colour() -> None:
    part = excerpt([recorded("impl-java.pcap")], 0)
    coloured = timeline.render(part, colour=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() == timeline.render(part).split()


@pytest.mark.parametrize("name", [*(r.id for r in RECORDINGS), *(f"s-{s.name}" for s in SYNTHETICS)])
def test_every_connection_draws_within_the_limit(name: str) -> None:
    files = {r.id: r.files for r in RECORDINGS} | {f"s-{s.name}": (s.file,) for s in SYNTHETICS}
    part = excerpt(files[name], 0)
    if not part.exists:
        return
    text = timeline.render(part, width=80, limit=50)
    assert text.startswith("connection 0")
    assert len(text.splitlines()) < 50 + 40
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", ["impl-go.pcap", "max-concurrent-streams.pcap", RTT205])
def test_nothing_is_lost_between_packets_and_bursts(name: str) -> None:
    """Every byte is in one burst, every frame in at least one."""
    part = excerpt([recorded(name)], 0)
    bursts, packets = sequence(part).bursts, part.packets
    for side in (0, 1):
        mine = bursts.direction == side
        assert bursts.bytes[mine].sum() == packets.payload_bytes[packets.direction == side].sum()
        covered = np.zeros(int((part.frames.direction == side).sum()), dtype=bool)
        for begin, end in zip(bursts.frames_from[mine], bursts.frames_to[mine], strict=True):
            covered[begin:end] = True
        assert covered.all()
    assert (np.diff(bursts.first_packet) > 0).all()
    assert (bursts.last_packet[:-1] < bursts.first_packet[1:]).all()


def test_silences_are_the_gaps_without_a_wait() -> None:
    part = excerpt([recorded(RTT205)], 0, stream=3)
    events = sequence(part)
    assert [int(d) // MS for d in events.silences.duration_ns] == [205], "the wait's own gap is told by the wait"
    assert events.silences.open_rpcs.tolist() == [1]
    whole = sequence(excerpt([recorded(RTT205)], 0))
    between_calls = [d for d, n in zip(whole.silences.duration_ns, whole.silences.open_rpcs, strict=True) if n == 0]
    assert sum(700 * MS < d < 1_010 * MS for d in between_calls) == 5


def test_a_range_is_counted_from_the_first_packet() -> None:
    part = excerpt([recorded(RTT205)], 0, begin=2_823_837_000, end=2_823_870_000)
    assert part.packets.packet.tolist() == list(range(45, 55))
    assert part.frames.stream.tolist() == [3, 3]
    assert "no packets with data in this range" in timeline.render(
        excerpt([recorded(RTT205)], 0, begin=3_300 * MS, end=3_301 * MS)
    )


def test_bytes_in_flight_are_what_was_sent_less_what_was_acknowledged() -> None:
    part = excerpt([recorded(RTT205)], 0)
    flight = in_flight(part.packets, 0, 4000)
    assert flight.max() == 16_153 - 1_450, "two more segments leave with the first ACK of the first call"
    assert flight[-1] == 33 + 9, "the client resets the connection before its GOAWAY is acknowledged"
    part = excerpt([recorded(RTT205)], 0, begin=2_823_000_000, end=2_824_000_000)
    assert in_flight(part.packets, 0, 50)[-1] == 14_080, "also where the range begins after the connection"


def test_a_part_without_an_acknowledgement_does_not_count_what_was_sent_before_it() -> None:
    part = excerpt([recorded("max-concurrent-streams.pcap")], 0, begin=2_119_000_000, end=2_120_050_000)
    assert in_flight(part.packets, 1, 50).max() == 140 + 1_260, "two packets, acknowledged together"


def pattern(text: str) -> list[Step]:
    return list(steps(np.array([ord(c) for c in text], dtype=np.int64)))


@pytest.mark.parametrize(
    ("text", "seen", "folded"),
    [
        ("", "", []),
        ("abc", "abc", []),
        ("aaa", "aaa", []),
        ("aaaa", "a", [(1, 4, 3)]),
        ("xabababab", "xab", [(3, 9, 3)]),
        ("xabababay", "xabababay", []),
        ("abcabcabcabcd", "abcd", [(3, 12, 3)]),
    ],
)
def test_a_pattern_folds_from_four_times_on(text: str, seen: str, folded: list[tuple[int, int, int]]) -> None:
    found = pattern(text)
    assert "".join(text[s.start] for s in found if not s.repeats) == seen
    assert [(s.start, s.stop, s.repeats) for s in found if s.repeats] == folded
    assert sum(s.stop - s.start for s in found) == len(text)


def test_the_longest_pattern_is_bounded() -> None:
    long = "".join(chr(97 + n) for n in range(LIMITS.period + 1))
    assert not [s for s in pattern(long * 8) if s.repeats]
    assert [s.repeats for s in pattern(long[:-1] * 8) if s.repeats] == [7]


def test_thousands_of_stalls_fit_a_screen() -> None:
    found = recording("h2-flow-control-go-64k")
    text = timeline.render(excerpt(found.files, 0), width=100)
    assert len(text.splitlines()) < 200 + 40, "the lines asked for, the head and what was left out"
    times = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) repetitions of the \d+ lines above", text)]
    assert sum(times) > 100
    assert "connection_window" in text


def test_no_limit_draws_every_event() -> None:
    part = excerpt([recorded("impl-java.pcap")], 0)
    text = timeline.render(part, limit=0)
    assert "repetitions of" not in text
    events = sequence(part)
    assert text.count(" ~~ ") - 1 == (events.kind == SILENCE).sum()  # once more in the legend
    assert len(re.findall(r"^ +\d+\.\d+  #", text, re.MULTILINE)) == (events.kind == BURST).sum()


def test_what_the_limit_leaves_out_is_told() -> None:
    text = drawn("rpc-errors.pcap", limit=20)
    left = re.search(r"\.\.\. ([\d,]+) more bursts", text)
    assert left
    assert int(left[1].replace(",", "")) > 100
    at = re.search(r"--from (\d+\.\d+) continues here", text)
    assert at
    rest = excerpt([recorded("rpc-errors.pcap")], 0, begin=round(float(at[1]) * 1e9))
    assert 0 < len(sequence(rest).shape) <= int(left[1].replace(",", ""))


def test_an_rpc_that_fails_is_never_folded_away() -> None:
    text = drawn("impl-java.pcap")
    assert "ends: NOT_FOUND" in text


def test_retransmissions_and_the_handshake_are_named() -> None:
    retransmitting = [excerpt([s.file], 0) for s in SYNTHETICS if "retrans" in s.name or "loss" in s.name]
    found = [part for part in retransmitting if sequence(part).bursts.retransmissions.any()]
    assert found
    for part in found:
        text = timeline.render(part, limit=0)
        assert "retransmitted" in text
        assert "SYN ACK" in text


def test_another_protocol_has_packets_only() -> None:
    text = timeline.render(excerpt([recorded("tls13-go.pcap")], 0), limit=30)
    assert "tls: packets only" in text
    assert re.search(r"TLS  \(", text)


def test_text_of_the_capture_cannot_command_the_terminal(tmp_path: Path) -> None:
    conversation = opened()
    conversation.unary("/a.B/\x1b[31mred\x1b]0;t\x07" + "長" * 80)
    path = tmp_path / "nasty.pcap"
    path.write_bytes(write_pcap(Link().carry(conversation)))
    text = timeline.render(excerpt([str(path)], 0), width=80)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert r"\x1b[31mred" in text
    assert text.count("長") == 80


def test_what_held_up_other_streams_is_drawn_with_a_slow_rpc() -> None:
    """Its answer came behind those of others: its own stream never stopped, and its budget still has their waits."""
    worst = slowest(recording("loss-1pct-rtt20").files, 1, Selection())
    text = timeline.slowest(worst, width=120)
    assert text.startswith("the slowest RPC of 800\n")
    assert "blocked intervals: none; other streams in this range: 3 congestion_window 48.1 ms" in text
    assert "BLOCKED 20.2 ms: congestion_window" in text
    assert "4,670 B of stream 777; in flight 5,614" in text


def test_an_rpc_that_waited_for_lost_packets_shows_every_retransmission() -> None:
    """Those of other streams hold it up as well: TCP delivers bytes in order."""
    parts = slowest([recorded("lab/loss-recovery.pcap.gz")], 40, Selection())
    lossy = [part for part in parts if part.rpc is not None and part.tables.rpc_budgets[part.rpc, LOSS_RECOVERY] > 0]
    assert 0 < len(lossy) < len(parts)
    for part in lossy:
        assert sequence(part).bursts.retransmissions.sum() == (part.packets.note == RETRANSMISSION).sum()
    assert re.search(r"retransmits bytes of #\d+, sent [\d.]+ ms before", timeline.slowest(lossy, limit=0))


@pytest.mark.parametrize("name", ["rtt205-go-16000.pcap", "impl-go.pcap"])
def test_the_slowest_rpcs_are_drawn_from_begin_to_end(name: str) -> None:
    parts = slowest([recorded(name)], 4, Selection())
    durations = []
    for part in parts:
        rpcs, row = part.tables.rpcs, part.rpc
        assert row is not None
        durations.append(int(rpcs.duration_ns[row]))
        assert (part.start_ns, part.end_ns) == (
            rpcs.start_time_ns[row],
            rpcs.start_time_ns[row] + rpcs.duration_ns[row],
        )
        assert set(part.frames.stream.tolist()) == {int(rpcs.stream[row])}
        assert {rpcs.first_packet[row], rpcs.last_packet[row]} <= set(part.packets.packet.tolist())
        excerpt_alone = excerpt([recorded(name)], part.connection, stream=part.stream)
        assert len(excerpt_alone.frames.stream) == len(part.frames.stream), "all frames of the stream are its RPC's"
    assert durations == sorted(durations, reverse=True)
    assert durations[0] == parts[0].tables.rpcs.duration_ns.max()


def test_lanes_say_what_packets_and_waits_do() -> None:
    part = excerpt(recording("h2-flow-control-go-64k").files, 0)
    text = timeline.render(part, width=160, limit=1)
    waits = part.tables.waits
    stops = waits.connection_window_bytes[(waits.connection_window_bytes >= 0) & (waits.direction == 0)]
    lane = next(line for line in text.splitlines() if line.startswith("  server connection window"))
    assert lane.endswith(f"{stops.min():,} to {stops.max():,} B")
    assert stops.min() == 0, "the window was at its end, as the finding says"
    flight = next(line for line in text.splitlines() if line.startswith("  client in flight"))
    assert int(re.sub(r"\D", "", flight.split(" to ")[1])) >= 65_535


def test_rpcs_open_at_the_end_are_named_with_who_is_waited_for() -> None:
    dead = "wild/half-open-nodeadline.pcap.zst"
    told = " ".join(drawn(dead, limit=0).replace("|", "").replace("~~", "").split())
    assert "19.759396 4 RPCs [425,427,429,431] open at the end, waiting for the server, the longest for 14.8 s" in told
    told = drawn("wild/window-deadlock.pcap.zst", limit=0).replace("|", "").replace("~~", "")
    assert "waiting for the server, the longest for 10.9 s (stream_window)" in " ".join(told.split())
    assert "1 RPC [427] open at the end" in drawn(dead, 427)
    assert "open at the end" not in timeline.render(excerpt([recorded(dead)], 0, end=1_000 * MS))
    assert "open at the end" not in drawn("impl-java.pcap")
