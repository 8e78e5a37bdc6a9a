"""Real captures against what the client counted, and against an independent counter of frames and messages."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support import RECORDINGS, Recording, canonical_status, recorded, recording

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.decode.errors import NoGrpcError
from grpcdiag.analyzer.tables import COMPLETE, METHOD_UNKNOWN, NOT_SEEN, TOUCHES_GAP, Tables

# Captures that do not hold what the client counted, and why. Each has a test of its own below.
NOT_WHOLE = {
    "mid-connection-go": "begins about a second after the connection: earlier RPCs, methods and statuses are not in it",
    "snaplen-128": "packets are cut at 128 bytes: some header blocks are not in it",
    "tls13-go": "TLS, with its secrets in a file beside it",
}
# The client's name of a status that the wire cannot tell: what the wire shows instead.
ON_THE_WIRE = {"DEADLINE_EXCEEDED": "CANCELLED"}  # grpc-go gives up with RST_STREAM CANCEL

COMPARED = [r for r in RECORDINGS if r.name not in NOT_WHOLE]
WHOLE = [pytest.param(r, id=r.id) for r in COMPARED]
COUNTED = [pytest.param(r, id=r.id) for r in RECORDINGS if "raw_count" in r.truth]


def statuses(tables: Tables) -> Counter[str]:
    return Counter(_core.STATUSES[code] if code != NOT_SEEN else "not seen" for code in tables.rpcs.status.tolist())


def short_methods(tables: Tables) -> Counter[str]:
    names = [tables.method_name(number) for number in tables.rpcs.method.tolist()]
    return Counter(name.rsplit("/", 1)[-1] if name else "not known" for name in names)


def test_most_captures_are_compared() -> None:
    assert len(WHOLE) >= 20
    assert len(COUNTED) >= 17


@pytest.mark.parametrize("capture", WHOLE)
def test_rpcs_per_method_are_the_clients(capture: Recording) -> None:
    tables = decode(capture.files)
    assert short_methods(tables) == capture.report["rpcs"]
    assert not (tables.rpcs.flags & TOUCHES_GAP).any()


@pytest.mark.parametrize("capture", COUNTED)
def test_frames_and_messages_are_the_independent_counters(capture: Recording) -> None:
    tables = decode(capture.files)
    count = capture.truth["raw_count"]
    assert tables.frame_counts == count["frames_by_type"]
    assert tables.message_count == count["grpc_messages_both_directions"]


def client_statuses(capture: Recording) -> Counter[str]:
    """Statuses by the client's report: by name with their numbers, or by call with their codes."""
    told: Counter[str] = Counter()
    for name, value in capture.report["status"].items():
        if capture.name.startswith("impl-"):
            told[_core.STATUSES[int(value)]] += 1
        else:
            status = canonical_status(name)
            told[ON_THE_WIRE.get(status, status)] += value
    return told


@pytest.mark.parametrize(
    "capture",
    [pytest.param(r, id=r.id) for r in COMPARED if r.report.get("status") and r.name != "too-many-pings"],
)
def test_statuses_are_the_clients(capture: Recording) -> None:
    tables = decode(capture.files)
    counts = statuses(tables)
    if capture.name == "deadline-exceeded":  # two resets came up to 0.3 ms before the deadline
        counts["CANCELLED"] += counts.pop("DEADLINE_EXCEEDED")
    assert counts == client_statuses(capture)
    assert (tables.rpcs.flags & COMPLETE).all()


def test_a_server_that_hangs_up_makes_its_rpcs_unavailable() -> None:
    """too-many-pings: no trailers end the second call, the server's FIN does; the client reports UNAVAILABLE."""
    capture = recording("too-many-pings")
    tables = decode(capture.files)
    assert [name.rsplit("code = ")[-1].split()[0] for name in capture.report["status"]] == ["OK", "Unavailable"]
    assert statuses(tables) == {"OK": 1, "UNAVAILABLE": 1}
    assert (tables.rpcs.flags & COMPLETE).all()
    assert tables.connections.goaway_server.tolist() == [11]  # ENHANCE_YOUR_CALM


def test_deadlines_are_in_the_requests() -> None:
    tables = decode(recording("deadline-exceeded").files)
    assert len(tables.deadlines) == 40
    # grpc-go sends what is left of the 50 ms when it writes the headers
    assert ((tables.deadlines > 48_000_000) & (tables.deadlines <= 50_000_000)).all()
    cancelled = np.isin(tables.rpcs.status, [_core.STATUSES.index(name) for name in ("CANCELLED", "DEADLINE_EXCEEDED")])
    assert cancelled.tolist() == [False, True] * 20
    assert (tables.rpcs.duration_ns[cancelled] > 49_000_000).all()
    assert (tables.rpcs.duration_ns[~cancelled] < 3_000_000).all()


def test_mid_connection() -> None:
    """988 of 3,000 RPCs ended before the capture; the names of the others were sent before it."""
    tables = decode(recording("mid-connection-go").files)
    assert len(tables.rpcs.stream) == 2012
    assert tables.connections.complete.tolist() == [0]
    assert (tables.rpcs.flags & METHOD_UNKNOWN).all()
    assert statuses(tables) == {"not seen": 2012}
    assert (tables.rpcs.flags & COMPLETE).all()
    assert np.array_equal(np.diff(tables.rpcs.stream.astype(np.int64)), np.full(2011, 2))
    assert tables.message_count == 2 * 2012
    assert tables.rpcs.request_bytes.min() == tables.rpcs.request_bytes.max()


def test_snaplen_128() -> None:
    """All 8,000 RPCs; of the 16,000 messages those in the cut part of the connections' first packets are lost."""
    tables = decode(recording("snaplen-128").files)
    assert len(tables.rpcs.stream) == 8000
    assert tables.message_count == 15_984
    assert tables.capture["truncated_packets"] > 0
    assert tables.connections.missing_bytes.sum() > 0


def test_tls_without_secrets_is_told_and_not_guessed() -> None:
    capture = recording("tls13-go")
    with pytest.raises(NoGrpcError, match=r"1 of 1 TCP connections are TLS") as told:
        analyze(capture.files)
    # from packet 4, the ClientHello, to packet 8, as Wireshark shows them
    assert "TLS 1.3; their handshakes take 1.80 ms after the ClientHello" in str(told.value)
    assert "None of their 300 packets was retransmitted" in str(told.value)
    tables = decode(capture.files)
    c = tables.connections
    assert (c.tls.tolist(), c.tls_decrypted.tolist(), c.tls_version.tolist()) == ([1], [0], [0x0304])
    assert 0 < c.tls_handshake_ns[0] < c.last_time_ns[0] - c.first_time_ns[0]
    assert tables.frame_counts == {}
    assert c.encrypted_bytes.sum() == c.payload_bytes.sum() > 0


def test_a_key_log_and_secrets_in_the_file_give_the_same() -> None:
    """The pcapng is the pcap with its key log in a decryption secrets block."""
    keys = Path(recorded("tls13-go.keys")).read_bytes()
    sidecar = decode(recording("tls13-go").files, keylog=keys)
    inside = decode(recording("tls13-go-secrets").files)
    count = recording("tls13-go").truth.get("raw_count")
    for tables in (sidecar, inside):
        assert short_methods(tables) == recording("tls13-go").report["rpcs"]
        assert statuses(tables) == {"OK": 100}
        assert tables.connections.tls_decrypted.tolist() == [1]
        assert count is None or tables.frame_counts == count["frames_by_type"]
    for column in ("stream", "method", "duration_ns", "request_bytes", "response_bytes", "first_packet", "last_packet"):
        assert np.array_equal(getattr(sidecar.rpcs, column), getattr(inside.rpcs, column)), column
    assert analyze(recording("tls13-go").files, keylog=keys).verdict.finding is None


def test_a_key_log_of_another_run_decrypts_nothing() -> None:
    keys = Path(recorded("tls13-go.keys")).read_bytes()
    other = bytes(ord("0") if byte == ord("1") else byte for byte in keys)
    tables = decode(recording("tls13-go").files, keylog=other)
    assert (tables.connections.tls_decrypted.tolist(), len(tables.rpcs.stream)) == ([0], 0)


def test_truncated_tells_the_byte() -> None:
    """The last record begins at byte 1,056,337 of 1,056,382; all RPCs were over by then."""
    capture = recording("truncated")
    tables = decode(capture.files)
    (damage,) = tables.capture["damage"]
    assert damage["offset"] == 1_056_337
    assert damage["packet"] == tables.capture["packets"]
    assert len(tables.rpcs.stream) == 500
    assert any("1,056,337" in warning for warning in analyze(capture.files).quality.warnings)


def comparable(tables: Tables) -> list[tuple[int, ...]]:
    r = tables.rpcs
    columns = (r.stream, r.start_time_ns, r.duration_ns, r.status, r.request_bytes, r.response_bytes, r.first_packet)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_rotated_files_in_any_order(order: tuple[int, ...]) -> None:
    files = recording("rotated").files
    assert len(files) == 4
    tables, shuffled = (decode(f) for f in (files, [files[place] for place in order]))
    assert comparable(shuffled) == comparable(tables)
    assert shuffled.frame_counts == tables.frame_counts
    assert (len(tables.rpcs.stream), tables.message_count) == (3000, 6000)
    assert tables.connections.missing_bytes.sum() == 0


def test_both_ends_of_a_lossy_link_agree() -> None:
    """Nothing that was delivered depends on where the capture was taken, though packets were lost between."""
    client, server = (
        decode(recording("loss-1pct-rtt20").files),
        decode(recording("loss-1pct-rtt20", "server").files),
    )
    assert len(client.rpcs.stream) == len(server.rpcs.stream) == 800
    assert client.message_count == server.message_count == 1600
    assert client.frame_counts == server.frame_counts
    for name in ("stream", "status", "request_bytes", "response_bytes", "request_messages", "response_messages"):
        left, right = getattr(client.rpcs, name), getattr(server.rpcs, name)
        assert np.array_equal(left[np.argsort(client.rpcs.stream)], right[np.argsort(server.rpcs.stream)]), name
    assert (client.rpcs.request_bytes == 3000).sum() == (client.rpcs.response_bytes == 6000).sum()


@pytest.mark.parametrize("name", ["rtt205-go-16000", "rtt205-go-32000"])
def test_both_ends_of_a_long_link_agree(name: str) -> None:
    client, server = (
        decode(recording(name).files),
        decode(recording(name, "server").files),
    )
    assert client.frame_counts == server.frame_counts
    assert client.rpcs.request_bytes.tolist() == server.rpcs.request_bytes.tolist()
    saved = client.rpcs.duration_ns - server.rpcs.duration_ns  # the round trip is outside the server's view
    assert (abs(saved - 205_000_000) < 2_000_000).all()
