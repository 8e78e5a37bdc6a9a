"""`mtu-black-hole`: full segments that never arrive while shorter ones do; never random loss or a dead peer."""

from __future__ import annotations

import pytest
from detecting import found, the_finding
from judging import changed, must, tables_of_scene, told
from support import recorded, synthetic

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import mtu_black_hole as detector
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.words import S

FIRES_ON = [
    "wild/icmp-mtu-ignored",
    "wild/mtu-blackhole",
    "wild/mtu-blackhole-server",
    "wild/grpcio-mtu",
    "wild/grpcio-mtu-first",
]
QUIET_ON = [
    "wild/ghz-outage",
    "wild/half-open-deadline",
    "wild/icmp-mtu-obeyed",
    "wild/client-vanished",
    "wild/bloat-same",
    "wild/rst-thirdparty",
]


@pytest.mark.parametrize(("name", "confidence"), [("mtu-blackhole", "medium"), ("mtu-blackhole-server", "high")])
def test_it_is_named_before_the_deadlines_that_follow(name: str, confidence: str) -> None:
    """The path dropped packets above 1,400 bytes from server to client; answers of 6 kB did not pass."""
    analysis = analyze([recorded(f"wild/{name}.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert (finding.severity, finding.confidence) == ("critical", confidence)
    assert (finding.metrics["lost_payload_bytes"], finding.metrics["arrived_payload_bytes"]) == (1_448, 712)
    assert analysis.verdict.finding == detector.ID
    assert {f.part_of for f in analysis.findings if f.id in ("deadline-exceeded", "loss-recovery")} == {detector.ID}
    assert analysis.quality.missing_bytes == 0
    assert analysis.budget["loss_recovery"] > 0.95 * sum(analysis.budget.values())


def test_requests_may_be_too_large_as_well() -> None:
    """A rule drops packets of the client above 1,000 bytes. Its resets of calls are behind the lost bytes, too."""
    analysis = analyze([recorded("wild/grpcio-mtu.pcap.zst")])
    finding = next(f for f in analysis.findings if f.id == detector.ID)
    assert finding.title.startswith("packets of client")
    assert int(finding.metrics["retransmissions"]) >= 3
    assert analysis.verdict.finding == detector.ID
    assert next(f for f in analysis.findings if f.id == "loss-recovery").part_of == detector.ID
    assert "peer-unreachable" not in {f.id for f in analysis.findings}
    assert analysis.budget["loss_recovery"] > 0.95 * sum(analysis.budget.values())


def test_a_sender_that_does_not_obey_icmp_is_named() -> None:
    """The router reports an MTU of 1,400 bytes; a rule of the server's firewall drops the errors."""
    finding = the_finding(detector, [recorded("wild/icmp-mtu-ignored.pcap.zst")])
    assert "10.71.2.1 drops packets of server 10.71.2.2 with 1,448 bytes of payload" in finding.verdict
    assert "an MTU of 1,400 bytes" in finding.verdict
    assert "silently" not in finding.verdict
    assert finding.evidence[0].what == "10.71.2.1 reports fragmentation needed (ICMP type 3 code 4, MTU 1,400)"


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("mtu", 1_487, True),
        ("mtu", 1_488, False),
        ("mtu", 68, True),
        ("mtu", 67, False),
        ("mtu", 0, False),
        ("code", 1, False),
        ("direction", 0, False),
        ("late", 1, False),
    ],
)
def test_an_icmp_error_explains_what_is_repeated_after_it(column: str, value: int, named: bool) -> None:
    """A segment with 1,448 bytes has 1,488 at least, and no link an MTU below 68."""
    tables = decode([recorded("wild/icmp-mtu-ignored.pcap.zst")])
    if column == "late":
        tables = changed(tables, "icmp_errors", first_time_ns=tables.undelivered.last_time_ns[:1])
    else:
        tables = changed(tables, "icmp_errors", **{column: [value]})
    verdict = must(detector, tables).verdict
    assert ("10.71.2.1 drops" in verdict) == named
    assert ("silently" in verdict) == (column == "code")  # only without any error about sizes


@pytest.mark.parametrize(("retransmissions", "fires"), [(3, True), (4, False)])
def test_few_retransmissions_are_loss(retransmissions: int, fires: bool) -> None:
    files = [synthetic("mtu-black-hole-server").file]
    assert bool(found(detector, files, retransmissions=retransmissions)) == fires


@pytest.mark.parametrize(("passing", "fires"), [(1_447, True), (1_448, False)])
def test_short_packets_fit_every_path(passing: int, fires: bool) -> None:
    for name in ("mtu-black-hole-server", "mtu-black-hole-client"):
        assert bool(found(detector, [synthetic(name).file], passing_bytes=passing)) == fires


def one_row(name: str, **columns: int) -> Tables:
    """A synthetic capture with some columns of its only row replaced."""
    return changed(tables_of_scene(name), "undelivered", **{column: [value] for column, value in columns.items()})


@pytest.mark.parametrize(("bytes_acknowledged", "fires"), [(0, False), (1_447, True), (1_448, False)])
def test_packets_as_long_must_never_have_arrived(bytes_acknowledged: int, fires: bool) -> None:
    assert bool(told(detector, one_row("mtu-black-hole-server", longest_bytes=bytes_acknowledged))) == fires


@pytest.mark.parametrize(("hole", "longest", "fires"), [(1_447, 100, False), (1_448, 100, True), (5_792, 1_448, False)])
def test_a_gap_is_a_full_segment_or_more(hole: int, longest: int, fires: bool) -> None:
    tables = one_row("mtu-black-hole-client", hole_bytes=hole, longest_seen_bytes=longest)
    assert bool(told(detector, tables)) == fires


@pytest.mark.parametrize(("open_ns", "fires"), [(3 * S - 1, False), (3 * S, True)])
def test_a_gap_stays_open_for_several_timeouts(open_ns: int, fires: bool) -> None:
    row = tables_of_scene("mtu-black-hole-client").undelivered
    tables = one_row("mtu-black-hole-client", heard_time_ns=int(row.first_time_ns[0]) + open_ns)
    assert bool(told(detector, tables)) == fires


def test_bytes_that_arrive_later_leave_no_row() -> None:
    """Recovered losses, reordering, and packets that the capture lacks are not undelivered."""
    for name in ("lab/loss-recovery.pcap.gz", "lab/head-of-line-blocking.pcap.gz", "bench/lossy.pcap.gz"):
        assert len(decode([recorded(name)]).undelivered.connection) == 0
