"""`rpc-errors`: the client's own count of statuses, and nothing that other findings tell."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from detecting import the_finding
from judging import changed, must, played, tables_of_scene, told
from msgspec.structs import replace
from support import RECORDINGS, Recording, canonical_status, recorded, recording, run_here, synthetic

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import rpc_errors
from grpcdiag.analyzer.facts import failures
from grpcdiag.analyzer.tables import NO_AGENT
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.scenes_failures import METHOD, opened, statuses
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = ["rpc-errors", "impl-go", "impl-py"]
QUIET_ON = ["deadline-exceeded", "ipv6"]


def test_counts_are_what_the_client_counted() -> None:
    capture = recording("rpc-errors")
    found = must(rpc_errors, decode(capture.files))
    client = {canonical_status(name): n for name, n in capture.report["status"].items()}
    del client["OK"]
    assert {s: found.metrics.get(f"{s.lower()}_rpcs", 0) for s in _core.STATUSES[1:]} == {
        s: client.get(s, 0) for s in _core.STATUSES[1:]
    }
    assert found.metrics["failed_rpcs"] == sum(client.values()) == 107
    assert (found.severity, found.confidence, found.lost_ns) == ("critical", "high", None)
    assert found.scope.methods == ("/lab.v1.Lab/Do", "/lab.v1.Lab/Down", "/lab.v1.Lab/NoSuchMethod")


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("wild/connect-go-connect-errors.pcap.zst", "Connect's error RESOURCE_EXHAUSTED"),
        ("wild/connect-web-get.pcap.zst", "Connect's error NOT_FOUND"),
        ("rpc-errors.pcap", "trailers with status "),
    ],
)
def test_the_evidence_says_how_the_protocol_tells_a_status(name: str, ends: str) -> None:
    found = must(rpc_errors, decode([recorded(name)]))
    assert any(item.what.startswith(ends) for item in found.evidence)
    assert all("trailers" not in item.what for item in found.evidence) == ends.startswith("Connect")


@pytest.mark.parametrize(("later_ns", "by", "named"), [(0, 0, True), (25 * MS, 0, False), (0, 1, False)])
def test_a_client_that_broke_http2_right_before_is_named(later_ns: int, by: int, *, named: bool) -> None:
    """C-core answers with INTERNAL in trailers, 0.4 ms later and without a GOAWAY."""
    tables = decode([recorded("wild/grpcio-broken-block.pcap.zst")])
    problems = tables.problems
    early = problems.time_ns - later_ns
    mine = np.where(problems.broken_by == 0, by, problems.broken_by)
    found = must(rpc_errors, changed(tables, "problems", time_ns=early, broken_by=mine))
    assert ("client 127.0.0.1 broke HTTP/2 in packet 29" in found.verdict) == named
    assert ("has the server's text" in found.verdict) != named
    assert ("HTTP/2 library" in found.remedies[0].knob) == named


@pytest.mark.parametrize("capture", [pytest.param(r, id=r.id) for r in RECORDINGS if r.name.startswith("impl-")])
def test_one_error_is_for_information(capture: Recording) -> None:
    found = must(rpc_errors, decode(capture.files))
    assert (found.metrics["failed_rpcs"], found.metrics["not_found_rpcs"], found.severity) == (1, 1, "info")


def test_the_message_is_never_shown() -> None:
    assert "a secret" not in repr(must(rpc_errors, tables_of_scene("failures-errors")))


def test_unknown_statuses_are_no_errors() -> None:
    assert told(rpc_errors, tables_of_scene("begun_late")) is None


@pytest.mark.parametrize(
    ("errors", "calls", "severity"),
    [(2, 10, "info"), (3, 10, "critical"), (3, 31, "warning"), (3, 30, "critical"), (3, 301, "info")],
)
def test_severity_follows_the_share_of_rpcs(tmp_path: Path, errors: int, calls: int, severity: str) -> None:
    found = must(rpc_errors, played(statuses([5] * errors + [0] * (calls - errors)), tmp_path))
    assert found.severity == severity


def test_the_evidence_of_a_reset_names_it() -> None:
    capture = synthetic("rst_stream")
    found = must(rpc_errors, decode([capture.file]))
    assert any("RST_STREAM REFUSED_STREAM from the server" in item.what for item in found.evidence)


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ([5, 5, 14], ", most with NOT_FOUND"),
        ([5, 5, 14, 14], ": NOT_FOUND and UNAVAILABLE"),
        ([5, 5, 14, 14, 2], ": NOT_FOUND, UNAVAILABLE and others"),
    ],
)
def test_only_a_majority_is_most(tmp_path: Path, codes: list[int], words: str) -> None:
    found = must(rpc_errors, played(statuses(codes), tmp_path))
    assert f"{words} " in f"{found.title} "
    assert f"{words} " in found.verdict


@pytest.mark.parametrize(
    ("name", "words", "remedy"),
    [
        ("caddy-backendkill", "all by END_STREAM without trailers", "the log of caddy"),
        ("grpc-ruby-pool", "all with RESOURCE_EXHAUSTED", "GRPC::RpcServer.new(pool_size: n)"),
    ],
)
def test_where_to_look(name: str, words: str, remedy: str) -> None:
    """Caddy lost its backend and sent no status; a Ruby server had no free thread for calls of 13 bytes."""
    files = [recorded(f"wild/{name}.pcap.zst")]
    found = must(rpc_errors, decode(files))
    assert words in found.title
    assert words in found.verdict
    assert found.remedies[0].knob.startswith(remedy)


def test_a_share_of_the_failures_has_its_word() -> None:
    words = [failures.name_most("with UNKNOWN", *counts) for counts in ((1, 1), (2, 2), (2, 3))]
    assert words == [", with UNKNOWN", ", all with UNKNOWN", ", most with UNKNOWN"]


def test_refused_streams_are_named_with_the_limit_that_they_passed(tmp_path: Path) -> None:
    """Node's client opened twenty streams before it knew the limit of five; servers without a limit refuse as well."""
    files = [recorded("wild/connect-node-refused.pcap.zst")]
    tables = decode(files)
    found = must(rpc_errors, tables)
    assert "it allows 5 streams at once, and client 10.77.0.1 had 20 open" in found.verdict
    assert "REFUSED_STREAM" in found.remedies[0].knob
    others = must(rpc_errors, changed(tables, "connections", peer_max_concurrent_streams=[-1]))
    assert "as servers do that stop" in others.verdict
    assert "at once" not in others.verdict


def failing(texts: list[str]) -> Conversation:
    conversation = opened()
    for text in texts:
        conversation.unary(METHOD, response=None, status=14, message=text)
    return conversation


def test_known_texts_are_shown_and_others_are_not(tmp_path: Path) -> None:
    """A text of Envoy's is shown unasked, without what follows it; the advice needs it for half of the failures."""
    lost = "upstream connect error or disconnect/reset before headers. reset reason: overflow"
    others = ["bob", "upstream request timeout of bob"]
    tables = played(failing([f"{lost}, bob", lost, *others]), tmp_path)
    assert tables.errors == (lost,)
    found = must(rpc_errors, tables)
    assert f'"{lost}" (2)' in found.explanation
    assert "The text of 2 is envoy's: a circuit breaker was open" in found.verdict
    assert "bob" not in repr(found)
    assert "circuit" not in must(rpc_errors, played(failing([lost, *others]), tmp_path)).verdict


def test_failed_rpcs_are_found_once_for_each_tables() -> None:
    tables = decode(recording("rpc-errors").files)
    assert failures.failed(tables) is failures.failed(tables)
    other = changed(tables, "rpcs", status=np.zeros_like(tables.rpcs.status))
    assert (failures.failed(other).status == 0).all()


def test_rpcs_beyond_the_kept_failures_are_counted() -> None:
    """The failures table keeps a limited number of rows: the statuses of all RPCs count all the same."""
    tables = decode(recording("rpc-errors").files)
    rpcs = tables.rpcs
    many = 1_000
    grown = type(rpcs)(*[np.tile(getattr(rpcs, name), many) for name in rpcs.__struct_fields__])
    kept = np.flatnonzero(grown.status != 0)[:100_000]
    assert len(kept) == 100_000
    everything = changed(
        replace(
            tables,
            rpcs=grown,
            deadlines=np.tile(tables.deadlines, many),
            methods=tuple(replace(m, rpcs=m.rpcs * many) for m in tables.methods),
        ),
        "failures",
        rpc=kept,
        reset_by=np.full(len(kept), 2),
        reset_code=np.zeros(len(kept)),
        answered_by=np.full(len(kept), NO_AGENT),
        foreign=np.zeros(len(kept)),
        refused_packet=np.zeros(len(kept)),
    )
    found = must(rpc_errors, everything)
    assert found.metrics["failed_rpcs"] == 107 * many
    assert found.metrics["not_found_rpcs"] == 21 * many


def test_a_status_that_the_client_left_before_is_none_of_the_server() -> None:
    """The client sends its FIN; then the server ends its streams with UNAVAILABLE, which nobody reads."""
    tables = decode([recorded("wild/watch-below-limit.pcap.zst")])
    assert len(tables.failures.rpc) == 9
    assert told(rpc_errors, tables) is None


def test_who_retries_already_is_not_told_to_retry() -> None:
    tables = decode([recorded("wild/grpcio-retries.pcap.zst")])
    retried = must(rpc_errors, tables)
    none = must(rpc_errors, changed(tables, "connections", retries=np.zeros(len(tables.connections.rpcs))))
    assert " 40 RPCs are retries: perhaps no call failed in the end." in retried.explanation
    assert "retries" not in none.explanation
    assert [r.knob for r in none.remedies if "retryPolicy" in r.knob]
    assert not [r.knob for r in retried.remedies if "retryPolicy" in r.knob]


@pytest.mark.parametrize("name", ["grpc-js-app-retries", "grpcio-app-retries"])
def test_an_application_that_retries_itself_is_not_told_to_retry(name: str) -> None:
    """Its calls carry no grpc-previous-rpc-attempts; a retry policy would multiply them."""
    tables = decode([recorded(f"wild/{name}.pcap.zst")])
    assert not [r.knob for r in must(rpc_errors, tables).remedies if "retryPolicy" in r.knob]
    found = must(rpc_errors, tables)
    assert found.severity == "warning"
    few = "as few as 1 call may have failed" if name == "grpc-js-app-retries" else "perhaps no call failed"
    words = r"After (29|30) failures the same request came again, [0-9.]+ ms later \(median\)"
    assert re.search(f"{words}: {few} in the end\\.", found.verdict)
    once = changed(tables, "repeats", next_stream=np.zeros(len(tables.repeats.stream)))
    assert must(rpc_errors, once).severity == "critical"
    assert [r.knob for r in must(rpc_errors, once).remedies if "retryPolicy" in r.knob]


@pytest.mark.parametrize("name", ["grpcio-failing-loop", "grpcio-failing-busy"])
def test_calls_that_follow_failures_by_chance_are_no_repeats(name: str) -> None:
    """Callers in a loop send the same request after an answer, too."""
    found = must(rpc_errors, decode([recorded(f"wild/{name}.pcap.zst")]))
    assert "same request" not in found.explanation
    assert found.severity == "critical"


def test_calls_that_failed_in_the_end_are_as_grave_as_before() -> None:
    """Envoy made four attempts of each of 18 calls, and all failed."""
    found = must(rpc_errors, decode([recorded("wild/envoy-retries.pcap.zst")]))
    assert "After 54 failures" in found.verdict
    assert "as few as 18 calls may have failed" in found.verdict
    assert found.severity == "critical"


def test_a_text_that_is_not_shown_is_announced_at_its_packet() -> None:
    finding = the_finding(rpc_errors, [recorded("wild/bigtable-missing-table.pcap.zst")])
    assert "Packet 13 has the server's text, and 4 others have one: --show-messages" in finding.verdict
    assert "log" not in finding.verdict
    assert [remedy.knob for remedy in finding.remedies] == ["grpcdiag analyze FILE --show-messages"]


def test_a_text_that_is_shown_is_the_verdict() -> None:
    outcome = run_here("analyze", recorded("wild/bigtable-missing-table.pcap.zst"), "--show-messages", "--json")
    verdict = json.loads(outcome.text)["verdict"]["text"]
    assert 'The server says: "table "projects/shop/instances/main/tables/orders_v2" not found" (5 of 5).' in verdict


BEGUN_LATE = "wild/temporal-begun-late.pcap.zst"


def test_calls_without_a_message_failed_though_their_status_is_hidden() -> None:
    found = must(rpc_errors, decode([recorded(BEGUN_LATE)]))
    assert found.title == "15 of 18 RPCs ended without a response message, most probably with an error"
    assert (found.severity, found.confidence) == ("critical", "medium")
    assert "2 of them ended with other header fields than those that were answered" in found.explanation
    assert found.metrics["unreadable_rpcs"] == 15


def test_by_their_shape_alone_they_are_a_warning_of_low_confidence() -> None:
    tables = decode([recorded(BEGUN_LATE)])
    sources = tables.rpcs.status_source
    shape = changed(
        tables, "rpcs", status_source=np.where(sources == failures.OTHER_TRAILERS, failures.NO_MESSAGE, sources)
    )
    found = must(rpc_errors, shape)
    assert (found.severity, found.confidence) == ("warning", "low")


def test_streams_may_end_without_a_message() -> None:
    """Methods with more messages than unary calls have: only what ended unlike answered calls is an error."""
    tables = decode([recorded(BEGUN_LATE)])
    streams = tuple(replace(method, messages=3 * method.rpcs) for method in tables.methods)
    found = must(rpc_errors, replace(tables, methods=streams))
    assert found.metrics["unreadable_rpcs"] == 2
    sources = np.where(tables.rpcs.status_source == failures.OTHER_TRAILERS, 0, tables.rpcs.status_source)
    assert told(rpc_errors, replace(changed(tables, "rpcs", status_source=sources), methods=streams)) is None


@pytest.mark.parametrize(
    ("failed", "of", "severity"),
    [(1, 1, "warning"), (2, 2, "warning"), (2, 3, "info"), (3, 3, "critical"), (0, 0, "info")],
)
def test_all_calls_are_never_few(failed: int, of: int, severity: str) -> None:
    assert failures.severity_of_count(failed, of, failures.Rates()) == severity
