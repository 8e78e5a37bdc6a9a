"""`connection-closed-early`: the RPCs that were lost, by whom and why; graceful ends are no trouble."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from detecting import the_finding
from hyperframe.frame import HeadersFrame, PingFrame
from judging import changed, must, played, tables_of_scene, told
from msgspec.structs import replace
from support import recorded, recording, synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import connection_closed_early
from grpcdiag.analyzer.facts import draining, failures
from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.summary.figures import summarize_calls
from grpcdiag.analyzer.tables import NOT_SEEN, TOUCHES_GAP, Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.scene import opened, side_by_side
from grpcdiag.fixtures.synthetic.scenes_failures import METHOD
from grpcdiag.fixtures.synthetic.wire import CLIENT, SERVER, Link
from grpcdiag.fixtures.synthetic.words import MS, START_NS, Side

FIRES_ON = ["too-many-pings", "lab/connection-closed-early"]
QUIET_ON = ["impl-go", "impl-js", "deadline-exceeded"]


def test_the_call_that_too_many_pings_cost() -> None:
    """The client reported one call Unavailable after 31.0 s."""
    capture = recording("too-many-pings")
    found = must(connection_closed_early, decode(capture.files))
    assert (found.severity, found.metrics["lost_rpcs"], found.metrics["closed_by_server"]) == ("warning", 1, 1)
    assert found.metrics["lost_rpc_time_ns"] == pytest.approx(capture.report["latency_ms"][1] * 1e6, rel=0.001)
    assert found.metrics["goaways"] == 'ENHANCE_YOUR_CALM "too_many_pings"'
    assert "too-many-pings" in found.remedies[0].knob


def test_synthetic() -> None:
    capture = synthetic("failures-closed-early")
    found = must(connection_closed_early, decode([capture.file]))
    assert (found.severity, found.confidence, found.lost_ns) == ("warning", "high", None)
    assert (found.metrics["lost_rpcs"], found.metrics["rpcs"], found.metrics["without_goaway"]) == (1, 5, 0)


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("nginx/1.22.1", "raise that limit (keepalive_requests 100000)."),
        ("somebody/1.0", "raise that limit."),
    ],
)
def test_the_verdict_names_the_limit_that_drains_connections(server: str, words: str) -> None:
    """nginx's keepalive_requests was 50; each of 12 connections ended after 50 requests, some with RPCs open."""
    tables = decode([recorded("wild/nginx-goaway50.pcap.zst")])
    agents = replace(tables, agents=(*tables.agents, server))
    named = changed(agents, "connections", server_agent=np.full(len(tables.connections.rpcs), len(tables.agents)))
    accepted = changed(named, "rpcs", stream=np.minimum(tables.rpcs.stream, 99))  # none above the GOAWAY's last stream
    verdict = must(connection_closed_early, accepted).verdict
    assert verdict.endswith(f"The server drains connections after exactly 50 requests each: {words}")
    few = must(connection_closed_early, accepted, drained=13).verdict
    assert "MaxConnectionAgeGrace" not in few


def test_an_age_has_the_settings_of_the_server() -> None:
    drained = draining.Drained(0, 30_000 * MS, 3, 3, "grpc-go")
    assert drained.describe().endswith("with GOAWAY at an age of about 30.0 s: a limit on the age of connections.")
    assert "MaxConnectionAge:" in drained.advise()
    assert [remedy.implementation for remedy in drained.list_remedies()] == ["grpc-go"]
    unknown = replace(drained, software=None)
    assert [remedy.implementation for remedy in unknown.list_remedies()] == [
        "C-core (C++, Python, Ruby, PHP)",
        "envoy",
        "grpc-go",
        "grpc-java",
        "grpc-js",
        "tonic",
    ]
    envoy = draining.Drained(0, 30_000 * MS, 3, 3, "envoy")
    assert envoy.list_remedies()[0].knob in envoy.advise()


def drained(requests: int, ages_ms: list[int], callers: int = 1) -> draining.Drained | None:
    """What connections have in common that were drained after equally many requests, at these ages."""
    return draining.find_drained(draining_server([requests] * 3, ages_ms, callers), draining.Alike())


def draining_server(requests: list[int], ages_ms: list[int], callers: int = 1) -> Tables:
    """Make a server drain three connections after so many requests, at these ages."""
    tables = decode([recorded("wild/grpc-java-okhttp-age.pcap.zst")])
    last = tables.goaways.last_stream != draining.ALL_STREAMS
    streams, times = tables.goaways.last_stream.copy(), tables.goaways.time_ns.copy()
    for connection, age in enumerate(ages_ms):
        mine = last & (tables.goaways.direction == 1) & (tables.goaways.connection == connection)
        times[mine] = tables.connections.opened_time_ns[connection] + age * MS
        streams[mine] = 2 * requests[connection] - 1
    tables = changed(tables, "goaways", last_stream=streams, time_ns=times)
    others = tables.connections.rpcs[3:].tolist()
    return changed(tables, "connections", rpcs=[*requests, *others], max_concurrent_rpcs=[callers] * 4)


@pytest.mark.parametrize(
    ("requests", "ages_ms", "callers", "words"),
    [
        (12, [2_000, 2_000, 2_100], 1, "after exactly 12 requests each and at an age of about 2.00 s"),
        (12, [2_000, 2_000, 2_200], 1, "after exactly 12 requests each"),  # in 200 ms there is one more
        (12, [2_000, 2_000, 2_200], 2, "after exactly 12 requests each and at an age of about 2.00 s"),
        (50, [2_000, 2_000, 2_000], 1, "after exactly 50 requests each"),
        (128, [2_000, 2_000, 2_000], 1, "after exactly 128 requests each"),
    ],
)
def test_equal_ages_leave_open_which_limit_it_is(requests: int, ages_ms: list[int], callers: int, words: str) -> None:
    found = drained(requests, ages_ms, callers)
    assert found is not None and found.when == words
    assert ("or on the age" in found.describe()) == ("age" in words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "after exactly 12 requests each and at an age of about 2.17 s"),
        ("max_age", "at an age of about 2.16 s"),
        ("app_requested", None),
        ("max_idle", None),
    ],
)
def test_the_text_of_a_goaway_says_which_limit_it_is(text: str, words: str | None) -> None:
    tables = decode([recorded("wild/grpc-java-okhttp-age.pcap.zst")])
    said = replace(tables, goaway_reasons=tuple(text for _ in tables.goaway_reasons))
    found = draining.find_drained(said, draining.Alike())
    assert (found and found.when) == words
    assert found is None or found.is_said == (text == "max_age")


@pytest.mark.parametrize("text", ["app_requested", "graceful_stop", ""])
def test_a_server_that_was_stopped_has_no_limit_on_age(text: str) -> None:
    tables = changed(decode([recorded("wild/dubbo-stop.pcap.zst")]), "connections", server_hint=[0])
    finding = must(connection_closed_early, replace(tables, goaway_reasons=("", text)))
    assert finding.verdict.endswith("Give the shutdown more time.")
    assert any("MaxConnectionAge" in remedy.knob for remedy in finding.remedies) == (not text)


def test_a_goaway_that_answers_a_close_is_no_cause() -> None:
    """OkHttp answers the server's FIN with GOAWAY INTERNAL_ERROR."""
    finding = must(connection_closed_early, decode([recorded("wild/grpc-java-okhttp-age.pcap.zst")]))
    assert finding.verdict.startswith("server 10.9.0.2 sent GOAWAY NO_ERROR on connection 0; server 10.9.0.2 closed it")
    tables = decode([recorded("wild/grpc-java-okhttp-age.pcap.zst")])
    before = changed(tables, "closings", time_ns=tables.closings.time_ns + 10_000 * MS)
    assert "GOAWAY INTERNAL_ERROR" in must(connection_closed_early, before).verdict


@pytest.mark.parametrize(
    ("size", "answered", "code", "says"),
    [
        (40_000, False, 11, True),
        (40_000, True, 11, False),  # the server accepted metadata of that size
        (9_000, False, 11, False),  # it fits into one frame
        (40_000, False, 2, True),
        (40_000, False, 13, False),  # HTTP_1_1_REQUIRED is about something else
    ],
)
def test_metadata_larger_than_a_frame_may_be_the_reason(
    size: int, answered: bool, code: int, says: bool, tmp_path: Path
) -> None:
    conv = opened()
    metadata = [(b"x-big", bytes(range(33, 127)) * (size // 94))]
    if answered:
        conv.unary(METHOD, metadata=metadata)
        metadata = []
    conv.start_rpc(METHOD, metadata=metadata, end_stream=True)
    conv.advance(5 * MS)
    conv.goaway("server", code)
    verdict = must(connection_closed_early, played(conv, tmp_path, close="server")).verdict
    assert ("Send less metadata, or raise its limit." in verdict) == says, verdict


def test_calls_that_a_server_in_error_left_are_lost_at_their_deadline(tmp_path: Path) -> None:
    """A server that goes on to end RPCs behind its GOAWAY left none of those up to its last stream."""
    for goes_on in (False, True):
        conv = opened()
        calls = [conv.start_rpc(METHOD, timeout="50m", end_stream=True) for _ in range(2)]
        conv.advance(5 * MS)
        conv.goaway("server", 11, calls[-1].stream_id)
        conv.advance(5 * MS)
        if goes_on:
            calls[0].finish()
        conv.advance(40 * MS)
        calls[1].cancel()
        if not goes_on:
            calls[0].cancel()
        tables = played(conv, tmp_path)
        found = must(connection_closed_early, tables)
        assert found.metrics["lost_rpcs"] == (0 if goes_on else 2)
        # the server answered one behind its GOAWAY; what it did for the others is not known
        server_ns = tables.rpc_budgets[:, CAUSES.index("server")] / MS
        assert server_ns.tolist() == pytest.approx([10 if goes_on else 5, 5], abs=1)


def closed_at(
    ages_ms: list[int],
    starts_ms: list[int],
    folder: Path,
    *,
    goaway: bool = False,
    calls_ms: Sequence[int] = (100, 180, 280),
    ports: Sequence[int] = (50_051,) * 3,
) -> Tables:
    """A server that closes connections at these ages, each with a call that was open since another age."""
    conversations, links = [], []
    for number, (age, start) in enumerate(zip(ages_ms, starts_ms, strict=True)):
        conv = opened(start_ns=START_NS + start * MS)
        conv.unary(METHOD)
        conv.advance_to(START_NS + (start + calls_ms[number]) * MS)
        conv.start_rpc(METHOD, end_stream=True)
        conv.advance_to(START_NS + (start + age) * MS)
        if goaway:
            conv.goaway("server", 2)
        conv.inject("server", PingFrame(0, bytes(8)).serialize(), deliver=False)
        conversations.append(conv)
        client = dataclasses.replace(CLIENT, port=40_001 + number)
        server = dataclasses.replace(SERVER, port=ports[number])
        links.append(Link(rtt_ns=conv.rtt_ns, close="server", client=client, server=server, connection=number))
    path = folder / "ages.pcap"
    path.write_bytes(side_by_side(conversations, links).file())
    return decode([str(path)])


@pytest.mark.parametrize(
    ("ages_ms", "starts_ms", "goaway", "named"),
    [
        ([500, 505, 495], [0, 100, 230], False, True),
        ([500, 505, 495], [0, 1, 2], False, False),  # all of them at one moment
        ([500, 400, 300], [0, 100, 200], False, False),  # the server stopped
        ([500, 900, 700], [0, 100, 230], False, False),
        ([500, 505], [0, 100], False, False),
        ([500, 505, 495], [0, 100, 230], True, False),  # its code says why
    ],
)
def test_a_limit_on_age_without_goaway_needs_proof(
    ages_ms: list[int], starts_ms: list[int], goaway: bool, named: bool, tmp_path: Path
) -> None:
    """Some versions of tonic close at max_connection_age without a word."""
    found = must(connection_closed_early, closed_at(ages_ms, starts_ms, tmp_path, goaway=goaway))
    assert ("The server closes connections at an age of about" in found.verdict) == named
    assert any("max_connection_age(d)" in remedy.knob for remedy in found.remedies) == named
    assert goaway or any("MaxConnectionAge" in remedy.knob for remedy in found.remedies) == named


@pytest.mark.parametrize(
    ("calls_ms", "ports", "named"),
    [
        ((100, 180, 280), (50_051,) * 3, True),
        ((100, 98, 101), (50_051,) * 3, False),  # 400 ms after the call began, too: a timer of calls
        ((100, 180, 280), (50_051, 50_051, 50_052), False),  # two of one server prove nothing
    ],
)
def test_a_timer_of_calls_is_no_limit_on_age(
    calls_ms: Sequence[int], ports: Sequence[int], named: bool, tmp_path: Path
) -> None:
    tables = closed_at([500, 505, 495], [0, 100, 230], tmp_path, calls_ms=calls_ms, ports=ports)
    assert ("an age of about" in must(connection_closed_early, tables).verdict) == named


@pytest.mark.parametrize(
    ("side", "code", "after_ns", "discarded"),
    [
        ("client", 9, 2 * MS, 1),
        ("client", 9, 30 * MS, 0),  # about something else
        ("client", 0, 2 * MS, 0),
        ("server", 9, 2 * MS, 0),
    ],
)
def test_a_response_that_the_client_cannot_decode_is_discarded(
    side: Side, code: int, after_ns: int, discarded: int, tmp_path: Path
) -> None:
    conv = opened()
    for _ in range(3):
        conv.unary(METHOD)
    conv.advance(after_ns)
    conv.goaway(side, code)
    tables = played(conv, tmp_path)
    assert ("none failed" in summarize_calls(tables)) == (not discarded)
    found = told(connection_closed_early, tables)
    assert (found.metrics.get("discarded_rpcs", 0) if found else 0) == discarded
    if discarded and found:
        assert found.severity == "warning"
        assert "right after 1 complete response: it could not decode the header block" in found.explanation
        assert "1 with a response that the client discarded" in summarize_calls(tables)


def waiting(calls: int, *, goaway: int | None = None, before: int = 0) -> Conversation:
    """Some calls that end well, then some that wait when the connection is closed."""
    conv = opened()
    for _ in range(before):
        conv.unary(METHOD)
    for _ in range(calls):
        conv.start_rpc(METHOD, end_stream=True)
    conv.advance(5 * MS)
    if goaway is not None:
        conv.goaway("server", goaway, 99, b"why")
    return conv


@pytest.mark.parametrize(
    ("calls", "before", "severity"), [(1, 0, "warning"), (2, 0, "warning"), (3, 0, "critical"), (3, 28, "warning")]
)
def test_severity_follows_the_share_of_rpcs(tmp_path: Path, calls: int, before: int, severity: str) -> None:
    found = must(connection_closed_early, played(waiting(calls, before=before), tmp_path, close="server"))
    assert (found.severity, found.metrics["lost_rpcs"]) == (severity, calls)
    assert "without GOAWAY" in found.verdict


def test_a_client_that_closes_gives_up_its_own(tmp_path: Path) -> None:
    found = must(connection_closed_early, played(waiting(3), tmp_path, close="client"))
    assert (found.severity, found.metrics["lost_rpcs"], found.metrics["closed_by_client"]) == ("info", 3, 1)


def broken(by: Side, then_ns: int = MS, goaway: int | None = None) -> Conversation:
    """Three calls wait; a side sends a header block with an index that no table has, and some time passes."""
    conv = waiting(3)
    conv.inject(by, HeadersFrame(1, b"\xfe", flags=["END_HEADERS"]).serialize(), deliver=False)
    conv.advance(then_ns)
    if goaway is not None:
        conv.goaway("client", goaway)
    return conv


def closed_after(conv: Conversation, folder: Path, then_ns: int) -> Tables:
    """The client closes so long after the bytes that break HTTP/2."""
    tables = played(conv, folder, close="client")
    return changed(tables, "connections", closed_time_ns=tables.problems.time_ns + then_ns)


def test_a_client_that_closes_as_soon_as_bytes_break_http2(tmp_path: Path) -> None:
    tables = closed_after(broken("server"), tmp_path, 20 * MS)
    found = must(connection_closed_early, tables)
    assert (found.severity, found.confidence, found.metrics["lost_rpcs"]) == ("critical", "medium", 3)
    assert "server 10.0.0.2 broke HTTP/2 in packet" in found.verdict
    assert sum("breaks HTTP/2" in one.what for one in found.evidence) == 1
    assert found.remedies[0].knob.startswith("the HTTP/2 library of server 10.0.0.2")
    # as where bytes before are missing
    late = changed(tables, "problems", broken_by=np.full(len(tables.problems.packet), 2, np.uint8))
    quiet = must(connection_closed_early, late)
    assert (quiet.severity, "broke HTTP/2" in quiet.verdict) == ("info", False)


@pytest.mark.parametrize(("by", "then_ms"), [("server", 25), ("client", 1)])
def test_a_client_that_closes_for_another_reason_is_not_excused_by_bytes(
    tmp_path: Path, by: Side, then_ms: int
) -> None:
    """Its library let the bytes pass for 25 ms, or sent them itself."""
    found = must(connection_closed_early, closed_after(broken(by), tmp_path, then_ms * MS))
    assert (found.severity, "broke HTTP/2" in found.verdict) == ("info", False)
    assert not any("breaks HTTP/2" in one.what for one in found.evidence)


@pytest.mark.parametrize(("by", "then_ms", "seen"), [("server", 1, True), ("server", 25, False), ("client", 1, False)])
def test_packets_bear_a_goaway_out_or_do_not(tmp_path: Path, by: Side, then_ms: int, seen: bool) -> None:
    found = must(connection_closed_early, played(broken(by, then_ms * MS, 9), tmp_path, close="client"))
    assert "By that code client 10.0.0.1 says that server 10.0.0.2 sent a header block" in found.verdict
    assert ("The packets bear it out: server 10.0.0.2 broke HTTP/2 in packet" in found.verdict) is seen
    assert found.confidence == "high"


def test_a_timer_of_the_client_is_a_warning_from_its_share_of_the_calls() -> None:
    """Seven calls of sixteen."""
    tables = decode([recorded("wild/curl-timer.pcap.zst")])
    found = [must(connection_closed_early, tables, timed_share=share).severity for share in (0.43, 0.44)]
    assert found == ["warning", "info"]


def test_a_timer_of_some_clients_is_no_advice_about_a_server_that_closed() -> None:
    """One connection of those that curl gave up was closed by the server instead."""
    tables = decode([recorded("wild/curl-timer.pcap.zst")])
    given_up = must(connection_closed_early, tables).scope.connections
    by = np.array(tables.connections.closed_by)
    by[given_up[0]] = 1
    found = must(connection_closed_early, changed(tables, "connections", closed_by=by))
    assert "find that timer" not in found.verdict
    assert "Check whether the server stopped or a proxy closed it" in found.verdict
    assert "Clients closed 6 connections" in found.explanation


def test_an_error_of_the_server_is_not_the_clients_wish(tmp_path: Path) -> None:
    found = must(connection_closed_early, played(waiting(3, goaway=2), tmp_path, close="client"))
    assert (found.severity, found.metrics["goaways"]) == ("critical", 'INTERNAL_ERROR "why"')


def test_an_error_that_cost_nothing_is_for_information(tmp_path: Path) -> None:
    found = must(connection_closed_early, played(waiting(0, goaway=1, before=2), tmp_path))
    assert (found.severity, found.metrics["lost_rpcs"]) == ("info", 0)
    assert "PROTOCOL_ERROR" in found.verdict
    assert "server 10.0.0.2 says that client 10.0.0.1 broke the protocol" in found.verdict


def test_more_streams_than_the_limit_are_no_fault_of_the_client() -> None:
    tables = decode([recorded("wild/hypercorn-stream-limit-node.pcap.zst")])
    settings, limit = tables.setups.server_settings_time_ns, tables.connections.peer_max_concurrent_streams
    known = must(connection_closed_early, changed(tables, "setups", server_settings_time_ns=settings - 30 * MS))
    assert "client 10.77.0.1 had 9 open: raise that limit." in known.verdict
    for other in (limit + 1, limit - 1, 0 * limit):
        found = must(connection_closed_early, changed(tables, "connections", peer_max_concurrent_streams=other))
        assert "says that client 10.77.0.1 broke the protocol" in found.verdict


def test_a_graceful_end_is_for_information(tmp_path: Path) -> None:
    """A call is open when GOAWAY comes, and gets its answer."""
    conv = waiting(1, goaway=0, before=3)
    conv.rpcs[-1].reply_message(10)
    conv.rpcs[-1].finish()
    conv.settle()
    tables = played(conv, tmp_path, close="server")
    found = must(connection_closed_early, tables)
    assert (found.severity, found.metrics["lost_rpcs"]) == ("info", 0)
    assert found.metrics["rpcs_per_connection_p50"] == 4
    assert "guess" not in found.verdict
    assert " and 4 RPCs; no RPC was lost" in found.verdict
    alone = must(connection_closed_early, changed(tables, "connections", rpcs=[1]))
    assert " and 1 RPC; no RPC was lost" in alone.verdict
    proxy = must(connection_closed_early, changed(tables, "connections", rpcs=[10_000]))
    assert "10,000 requests" in proxy.verdict
    assert proxy.confidence == "medium"


def test_a_client_that_says_goodbye_first_is_nothing(tmp_path: Path) -> None:
    conv = opened()
    conv.unary(METHOD)
    conv.goaway("client", 0, 0)
    conv.advance(MS)
    conv.goaway("server", 0, 1)
    assert told(connection_closed_early, played(conv, tmp_path)) is None


def test_an_answer_that_may_be_missing_is_no_loss() -> None:
    tables = tables_of_scene("failures-closed-early")
    flags = tables.rpcs.flags | TOUCHES_GAP
    found = must(connection_closed_early, changed(tables, "rpcs", flags=flags))
    assert (found.severity, found.metrics["lost_rpcs"]) == ("info", 0)


def test_a_capture_that_ends_first_shows_no_end() -> None:
    assert told(connection_closed_early, tables_of_scene("unfinished")) is None


@pytest.mark.parametrize(("code", "says"), [(11, " Before it, client 10.0.0.1 had reset 3 of 5 RPCs."), (2, "")])
def test_calls_that_were_reset_before_a_goaway_for_too_much(tmp_path: Path, code: int, says: str) -> None:
    """Three of five calls are reset; servers limit that (CVE-2023-44487)."""
    conv = opened()
    calls = [conv.start_rpc(METHOD, end_stream=True) for _ in range(5)]
    conv.advance(5 * MS)
    for call in calls[:3]:
        call.cancel()
    conv.advance(5 * MS)
    conv.goaway("server", code, 9)
    explained = must(connection_closed_early, played(conv, tmp_path, close="server")).explanation
    assert explained.endswith(says)
    assert ("had reset" in explained) == bool(says)


@pytest.mark.parametrize(
    ("scene", "says"),
    [
        ("idle-connection-cut-fires-watch", "a RST without ACK with the address of server 10.0.0.2 ended it"),
        ("idle-connection-cut-quiet-abort", "server 10.0.0.2 closed it"),
    ],
)
def test_an_end_that_does_not_know_the_connection_did_not_close_it(scene: str, says: str) -> None:
    assert says in must(connection_closed_early, tables_of_scene(scene)).explanation


def test_calls_that_a_goaway_refused_are_not_lost() -> None:
    """They were not processed: they are `abrupt-goaway`."""
    assert told(connection_closed_early, tables_of_scene("abrupt-goaway-refuses")) is None
    assert must(connection_closed_early, tables_of_scene("abrupt-goaway-closes")).metrics["lost_rpcs"] == 3


@pytest.mark.parametrize(("later_ms", "severity"), [(0, "warning"), (15, "warning"), (20, "info")])
def test_a_client_that_closes_as_soon_as_a_goaway_comes_drops_its_calls(later_ms: int, severity: str) -> None:
    """The server allowed all streams to end; grpclib closed less than 4 ms after its GOAWAY, and 13 calls failed."""
    tables = decode([recorded("wild/goaway-clientdrops.pcap.zst")])
    goaways = tables.goaways
    earlier = changed(tables, "goaways", time_ns=goaways.time_ns - later_ms * MS)
    found = must(connection_closed_early, earlier)
    assert (found.severity, found.metrics["lost_rpcs"]) == (severity, 9)
    assert ("the client's library" in found.verdict) == (severity == "warning")


def test_an_rpc_that_ended_before_its_connection_is_shown_with_its_own_last_packet() -> None:
    """Its status is not known, as where its header fields refer to some from before the capture."""
    tables = decode([synthetic("small-packets-fires").file])
    rpc = int(np.flatnonzero(tables.rpcs.status == NOT_SEEN)[0])
    closed = failures.ended(tables, rpc, "the connection ends")
    assert closed.packet in tables.closings.packet
    before = np.where(np.arange(len(tables.rpcs.status)) == rpc, tables.rpcs.duration_ns // 2, tables.rpcs.duration_ns)
    last = failures.ended(changed(tables, "rpcs", duration_ns=before), rpc, "the last packet of this RPC")
    assert (last.packet, last.time_ns) == (tables.rpcs.last_packet[rpc], tables.rpcs.start_time_ns[rpc] + before[rpc])


def test_calls_that_end_right_before_their_server_closes_are_counted() -> None:
    tables = decode([recorded("wild/grpcio-age-grace.pcap.zst")])
    assert "5 RPCs ended with an error status right before that" in must(connection_closed_early, tables).explanation
    later = changed(tables, "connections", closed_time_ns=tables.connections.closed_time_ns + 20_000_000)
    assert "no RPC was lost." in must(connection_closed_early, later).explanation


def test_settings_that_were_not_acknowledged_are_the_reason() -> None:
    finding = the_finding(connection_closed_early, [recorded("wild/grpcio-settings-timeout.pcap.zst")])
    assert "says that client 127.0.0.1 did not acknowledge its SETTINGS in time" in finding.verdict
    assert not any("may say why" in remedy.note for remedy in finding.remedies)


def test_a_client_that_closes_behind_a_graceful_goaway_is_looked_at() -> None:
    """Each connection was drained 222 ms after it was opened, and as long after its one call: no limit on age."""
    finding = the_finding(connection_closed_early, [recorded("wild/grpc-js-keepalive-after-goaway.pcap.zst")])
    assert "The GOAWAY let that call end: look at the client's keepalive" in finding.verdict
    assert "age" not in finding.explanation
    assert not any("MaxConnectionAge" in remedy.knob for remedy in finding.remedies)


def edges(_folder: Path) -> Iterator[Tables]:
    """Connections drained at other numbers of requests, and at unequal numbers at ages that are alike or not."""
    yield draining_server([120] * 3, [2_000] * 3)
    for ages_ms in ([2_000, 2_050, 2_100], [2_000, 2_500, 3_500]):
        tables = draining_server([20, 31, 42], ages_ms)
        yield changed(tables, "goaways", open_rpcs=np.ones(len(tables.goaways.open_rpcs)))
