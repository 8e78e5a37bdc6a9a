"""`compare`: the acceptance pairs with their exact text, their figures against tshark's, and the functions at edges."""

from __future__ import annotations

import json as standard_json
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from types import FrameType
from typing import Any

import jsonschema
import numpy as np
import pytest
from msgspec.structs import replace
from support import RECORDINGS, SNAPSHOTS, recorded, recording, require_tool, run_here

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.model.analysis import Analysis, Traffic
from grpcdiag.reports import analysis_json
from grpcdiag.reports.compare import html, json, markdown, terminal
from grpcdiag.reports.compare.because import differences
from grpcdiag.reports.compare.comparison import Comparison, compare
from grpcdiag.reports.compare.difference import NOT_VISIBLE
from grpcdiag.reports.compare.figures import interval, packets_of
from grpcdiag.reports.compare.regression import judge, judge_alone
from grpcdiag.reports.compare.rules import METRICS, RuleError, parse
from grpcdiag.reports.compare.run import label, runs

PAIRS = {
    "ably": ("ably-staggered-veth", "ably-synchronised-veth"),
    "ydb": ("ydb-unary-single-inflight8", "ydb-unary-multi-inflight8"),
    "streams": ("max-concurrent-streams", "max-concurrent-streams-control"),
}
IDS = ("ping-storm", "max-concurrent-streams")
VALIDATOR = jsonschema.Draft202012Validator(json.schema())
NO_TRAFFIC = {side: dict.fromkeys(Traffic.__struct_fields__, 0) for side in ("client", "server")}
_DOCUMENTS: dict[str, dict[str, Any]] = {}


def document(name: str) -> dict[str, Any]:
    """The analysis of a recording under its bare name."""
    if name not in _DOCUMENTS:
        analysis = analyze(recording(name).files)
        _DOCUMENTS[name] = standard_json.loads(analysis_json.render(replace(analysis, files=(f"{name}.pcap",))))
    return _DOCUMENTS[name]


def of_document(document: Mapping[str, Any]) -> Analysis:
    return analysis_json.read(standard_json.dumps(document).encode())


def saved(name: str) -> Analysis:
    return of_document(document(name))


def pair(name: str) -> Comparison:
    return compare([saved(one) for one in PAIRS[name]])


def figure(comparison: Comparison, name: str) -> tuple[float | None, ...]:
    return next(figure.values for figure in comparison.figures if figure.name == name)


def changed(name: str, **parts: Any) -> Analysis:
    """A recording's document with other parts."""
    return of_document(document(name) | parts)


@pytest.mark.parametrize("name", [*PAIRS, "scaling"])
def test_snapshot(name: str, update_snapshots: bool) -> None:
    sweep = ("ydb-unary-single-inflight1", *PAIRS["ydb"])
    compared = compare([saved(one) for one in sweep]) if name == "scaling" else pair(name)
    text, path = terminal.render(compared, width=80), SNAPSHOTS / f"compare-{name}.txt"
    if update_snapshots:
        path.write_text(text)
    assert text == path.read_text(), "to accept the new text: pytest --update-snapshots"


def test_the_sentence_of_spread_publishers() -> None:
    said = pair("ably").verdict
    assert said.startswith("A sends 3.2 times as many packets per message as B (0.88 against 0.28) because")
    assert "its 200 streams send at more different times" in said
    assert "2,191 of 9,529 packets carry only PING or WINDOW_UPDATE (B: 195 of 2,878)" in said
    assert any("different amounts of work: 10,800 messages in A, 10,390 messages in B" in n for n in pair("ably").notes)


def test_the_sentence_of_a_shared_connection() -> None:
    said = pair("ydb").verdict
    assert said.startswith("B's throughput is 1.31 times A's (10,860 against 8,304 RPCs per second)")
    assert "because in A 8 callers share a connection that waits for the client to send 24% of the time" in said
    assert "while B has 8 connections for 8 callers" in said


def test_the_sentence_of_a_stream_limit() -> None:
    said = pair("streams").verdict
    assert said.startswith("B's throughput is 4.8 times A's (2,266 against 468 RPCs per second)")
    assert "because A's server allows 10 concurrent streams" in said


@pytest.mark.parametrize("name", PAIRS)
def test_the_other_way_round_says_the_same(name: str) -> None:
    """With the letters changed: who is worse off does not depend on the order."""
    turned = compare([saved(one) for one in reversed(PAIRS[name])]).verdict
    swap = str.maketrans("AB", "BA")
    letters = ("A", "B", "A's", "B's")
    words = [word.translate(swap) if word.strip("(:,.") in letters else word for word in turned.split()]
    assert " ".join(words) == pair(name).verdict


# What tshark counts


KINDS = {0: "data_frames", 4: "settings", 6: "pings", 8: "window_updates"}


FIELDS = ("frame.time_epoch", "tcp.stream", "http2.streamid", "http2.type", "http2.flags")
FIELDS += ("tcp.len", "tcp.analysis.retransmission")


@cache
def tshark_rows(name: str) -> list[list[str]]:
    """FIELDS of every TCP packet; its gRPC dissector is off, with which it loses DATA frames (docs/verify.md)."""
    (file,) = recording(name).files
    ports = sorted({connection["server"].rsplit(":", 1)[1] for connection in document(name)["connections"]})
    decode = [word for port in ports for word in ("-d", f"tcp.port=={port},http2")]
    asked = [word for field in FIELDS for word in ("-e", field)]
    command = [
        require_tool("tshark"),
        "-r",
        file,
        "--disable-protocol",
        "grpc",
        *decode,
        "-Y",
        "tcp",
        "-T",
        "fields",
        *asked,
    ]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line.split("\t") for line in lines]


def tshark_counts(name: str) -> Counter[str]:
    """Packets by kind and frames by type, as tshark lists them."""
    counts: Counter[str] = Counter()
    for _, _, _, types, flags, length, again in tshark_rows(name):
        counts["packets"] += 1
        kinds = [int(kind) for kind in types.split(",") if kind]
        marks = [int(flag, 0) for flag in flags.split(",") if flag]
        counts["payload_packets"] += int(length) > 0 and not again
        counts["payload_bytes"] += int(length)
        counts["magic"] += 0
        for kind, mark in zip(kinds, marks, strict=False):
            if kind == 6 and mark & 1:
                counts["ping_acks"] += 1
            elif kind in KINDS:
                counts[KINDS[kind]] += 1
    return counts


@pytest.mark.parametrize("name", [name for both in PAIRS.values() for name in both])
def test_figures_equal_tsharks(name: str) -> None:
    (run,), theirs = runs([saved(name)]), tshark_counts(name)
    assert run.packets == theirs["packets"]
    for what in ("payload_packets", "payload_bytes", *KINDS.values(), "ping_acks"):
        assert run.sent(what) == theirs[what], what


@pytest.mark.parametrize("name", [name for both in PAIRS.values() for name in both])
def test_packets_divide_into_parts(name: str) -> None:
    (run,) = runs([saved(name)])
    assert sum(packets_of(run, kind) or 0 for kind in ("data", "control", "other")) == run.packets


@pytest.mark.parametrize("name", PAIRS["ydb"] + PAIRS["streams"])
def test_rates_equal_tsharks(name: str) -> None:
    """RPCs, by their stream identifiers, over the time from the first HEADERS to the last."""
    times, streams = [], set()
    for at, connection, of, types, *_ in tshark_rows(name):
        ids = of.split(",")
        if "1" in types.split(","):
            times.append(float(at))
        streams |= {(connection, one) for one in ids if one not in ("", "0")}
    (run,) = runs([saved(name)])
    assert len(streams) == run.rpcs
    assert run.per_s == pytest.approx(len(streams) / (max(times) - min(times)), rel=1e-3)


def test_counts_equal_what_the_clients_counted() -> None:
    """An independent reading of the captures, recorded with them."""
    for name in (name for both in PAIRS.values() for name in both):
        (run,), truth = runs([saved(name)]), recording(name).truth["raw_count"]
        frames = truth["frames_by_type"]
        assert run.messages == truth["grpc_messages_both_directions"]
        assert run.sent("data_frames") == frames["DATA"]
        assert (run.sent("pings") or 0) + (run.sent("ping_acks") or 0) == frames.get("PING", 0)
        assert run.sent("window_updates") == frames["WINDOW_UPDATE"]


# Every capture with every other


def test_every_comparison_is_valid_and_fits() -> None:
    names = sorted({r.name for r in RECORDINGS if r.side == "client" and sum(map(len, r.files)) < 2_000})
    small = [n for n in names if n.startswith(("impl-", "rtt205", "rpc-", "max-", "deadline", "too-many"))]
    for one, other in zip(small, [*small[1:], small[0]], strict=True):
        compared = compare([saved(one), saved(other)], [parse("latency:1.2", IDS), parse("warning", IDS)])
        VALIDATOR.validate(standard_json.loads(json.render(compared)))
        for width in (80, 160):
            text = terminal.render(compared, width=width)
            assert max(map(len, text.splitlines())) <= width
            assert "…" not in text
    compared = compare([saved(name) for name in small])
    VALIDATOR.validate(standard_json.loads(json.render(compared)))


def test_a_capture_and_itself_do_not_differ() -> None:
    rules = [
        parse(text, IDS) for text in ("latency:1", "throughput:1", "packets:1", "control:1", "errors:0.01", "info")
    ]
    compared = compare([saved("rpc-errors")] * 2, rules)
    assert compared.verdict == "A and B do not differ by 10% or more in what was compared."
    assert not compared.differences and not compared.notes
    assert {c.change for c in compared.changes} == {"stays"}
    assert all(shift.shift_ns == 0 and shift.certain is not True for shift in compared.shifts)
    assert not [outcome for outcome in compared.outcomes if outcome.met]


def test_a_text_is_the_same_as_its_capture() -> None:
    text = analysis_json.render(analyze(recording("rpc-errors").files)).encode()
    assert replace(analysis_json.read(text), files=("rpc-errors.pcap",)) == saved("rpc-errors")


# The intervals


def test_intervals_hold_what_they_are_for() -> None:
    """Of two known distributions the shift of the median lies in the interval in 95 of 100 drawings, or more."""
    random = np.random.default_rng(6)
    held, drawings, count = 0, 400, 101
    low, high = 41, 61  # ranks of 101 values, as the core gives them
    for _ in range(drawings):
        one, other = (np.sort(random.exponential(scale, count)) * 1e6 for scale in (1.0, 1.5))
        ends = [(int(v[low - 1]), int(v[high - 1])) for v in (one, other)]
        bounds = interval(int(one[50]), ends[0], int(other[50]), ends[1])
        held += (bounds[0] or 0) <= 0.5e6 * math.log(2) <= (bounds[1] or 0)
    assert held >= 0.95 * drawings


def test_an_interval_has_the_ends_that_its_values_have() -> None:
    assert interval(10, (8, 12), 20, (19, 24)) == (10 - 3, 10 + 5)
    assert interval(10, (None, 12), 20, (19, 24)) == (7, None)
    assert interval(10, (8, None), 20, (19, 24)) == (None, 15)
    assert interval(10, (None, None), 20, (None, None)) == (None, None)


# Sentences


@pytest.mark.parametrize(
    ("slow", "why"),
    [
        ("cpu-quota", "a CPU quota (0.2 processors) stopped threads in 77% of the time"),
        ("processor-saturated", "threads waited for a processor in 86% of the time"),
        ("own-connections", "B has 17.3 concurrent RPCs on average, A has 6.8"),  # no thread was held up
    ],
)
def test_threads_that_could_not_send_come_before_the_rpcs_that_were_open(slow: str, why: str) -> None:
    captures = [recorded(f"processes/{name}.pcap.zst") for name in (slow, "one-connection")]
    analyses = [analysis_json.read(run_here("analyze", str(file), "--json").out) for file in captures]
    (found,) = [d for d in differences(*runs(analyses)) if d.what == "throughput"]
    assert why in found.sentence


def test_without_a_reason_the_packets_do_not_tell() -> None:
    """The same rates and counts without the findings: the difference stays, what it is due to is not made up."""
    one, other = (document(name) for name in PAIRS["ydb"])
    bare = [of_document(d | {"findings": [], "budget": {}, "traffic": NO_TRAFFIC}) for d in (one, other)]
    found = {d.what: d for d in differences(*runs(bare))}
    assert not found["throughput"].reasons
    assert NOT_VISIBLE in found["throughput"].sentence


def test_a_finding_that_both_have_is_no_reason() -> None:
    one, other = (document(name) for name in PAIRS["ydb"])
    both = of_document(other | {"findings": one["findings"]})
    found = {d.what: d for d in differences(*runs([of_document(one), both]))}
    assert all(r.finding is None for r in found["throughput"].reasons)


def test_a_finding_too_small_for_the_difference_is_no_reason() -> None:
    one, other = (document(name) for name in PAIRS["ydb"])
    findings = [
        f | {"metrics": f["metrics"] | {"client_held_ns": 1000}} if "client_held_ns" in f["metrics"] else f
        for f in one["findings"]
    ]
    found = {d.what: d for d in differences(*runs([of_document(one | {"findings": findings}), of_document(other)]))}
    assert all(r.finding is None for r in found["throughput"].reasons)


def test_failures_come_first() -> None:
    found = differences(*runs([saved("max-concurrent-streams-control"), saved("rpc-errors")]))
    assert found[0].what == "failed_rpcs"
    assert found[0].worse == "B"
    assert found[0].sentence == (
        "35.4% of the RPCs fail in B (0.0% in A) because 107 of 302 RPCs ended with an error status: NOT_FOUND, "
        "INTERNAL and others (rpc-errors)."
    )


def test_a_few_missed_deadlines_are_not_why_others_fail() -> None:
    """The finding must tell of the statuses that make the difference."""
    base = document("rpc-errors")
    late = document("deadline-exceeded")["findings"]
    both = of_document(base | {"findings": [f for f in late if f["id"] == "deadline-exceeded"]})
    found = differences(*runs([saved("max-concurrent-streams-control"), both]))
    assert found[0].what == "failed_rpcs"
    assert not found[0].reasons


def test_tails_count() -> None:
    """The medians are alike, the slowest hundredth is not."""
    found = {d.what: d for d in differences(*runs([saved(name) for name in PAIRS["streams"]]))}
    assert found["tail"].sentence == (f"B's p99 latency is 1.24 times A's (27.6 ms against 22.3 ms); {NOT_VISIBLE}.")


def test_a_tail_within_chance_is_no_difference() -> None:
    """It is named as what may be chance, where nothing else differs."""
    base = document("max-concurrent-streams")
    method = base["methods"][0]
    wide = {quantile: [1, 10**9] for quantile in ("p50", "p90", "p99", "p999")}
    slower = method["latency_ns"] | {"p99": round(1.3 * method["latency_ns"]["p99"])}
    other = of_document(base | {"methods": [method | {"latency_ns": slower, "latency_intervals_ns": wide}]})
    compared = compare([saved("max-concurrent-streams"), other])
    assert not compared.differences
    assert compared.verdict == (
        "A and B do not differ by 10% or more beyond chance. "
        "B's p99 latency is 1.30 times A's (29.0 ms against 22.3 ms), which may be chance."
    )


def test_a_rate_of_one_direction_that_changes_is_named() -> None:
    base = document("ably-synchronised-veth")
    traffic = base["traffic"] | {"server": base["traffic"]["server"] | {"messages": 100}}
    for both in ([base, base | {"traffic": traffic}], [base | {"traffic": traffic}, base]):
        found = {d.what: d for d in differences(*runs([of_document(one) for one in both]))}
        assert "response messages per second" in found["throughput"].sentence


def test_budgets_give_reasons_of_latency() -> None:
    said = compare([saved("rtt205-go-14000"), saved("rtt205-go-16000")]).verdict
    assert said.startswith("RPCs take 1.65 times as long in B as in A (mean 411 ms against 248 ms) because 100% of the")
    assert "time blocked by TCP congestion control (slow-start-after-idle:" in said


# Three and more


def swept(*loads: tuple[int, float]) -> Comparison:
    """Captures of as many callers with as many RPCs a second: those of one recording, with other spans."""
    base = document("max-concurrent-streams-control")
    first = base["methods"][0]["first_start_time_ns"]

    def one(callers: int, per_s: float) -> Analysis:
        method = base["methods"][0] | {"last_end_time_ns": first + round(1000 / per_s * 1e9)}
        connection = base["connections"][0] | {"max_concurrent_rpcs": callers}
        return of_document(base | {"methods": [method], "connections": [connection]})

    return compare([one(*load) for load in loads])


def test_the_knee_of_a_curve() -> None:
    """The figures of a public post-mortem: rates up to 17 callers, flat or falling from there."""
    curve = swept((1, 10_435), (5, 28_000), (10, 37_170), (17, 39_000), (21, 38_500)).scaling
    assert curve is not None
    assert (curve.by, curve.knee) == ("callers", "C")
    assert [round(point.of_ideal, 2) for point in curve.points] == [1.0, 0.54, 0.36, 0.22, 0.18]
    assert "The knee is at 10 callers (C, 37,170 per second, 36% of the ideal)" in curve.text


@pytest.mark.parametrize(
    "loads",
    [
        ((1, 100.0), (2, 199.0), (4, 390.0)),  # straight
        ((1, 100.0), (4, 150.0), (4, 300.0)),  # two captures of four callers: no curve
        ((1, 100.0), (2, 100.0), (4, 100.0)),  # flat from the beginning: no bend
    ],
)
def test_no_knee(loads: tuple[tuple[int, float], ...]) -> None:
    compared = swept(*loads)
    assert compared.scaling is not None
    assert compared.scaling.knee is None
    assert "knee" not in terminal.render(compared)


def test_points_are_ordered_and_the_best_rate_per_caller_is_the_ideal() -> None:
    compared = swept((4, 300.0), (1, 100.0), (2, 190.0))
    assert compared.scaling is not None
    assert [point.run for point in compared.scaling.points] == ["B", "C", "A"]
    assert [point.ideal_per_s for point in compared.scaling.points] == pytest.approx([100, 200, 400])


def test_a_slow_first_capture_is_not_the_ideal() -> None:
    """A lone caller that was slow made the others 248 % of the ideal."""
    compared = swept((1, 40.0), (2, 198.4), (4, 396.0))
    assert compared.scaling is not None
    assert [round(point.of_ideal, 2) for point in compared.scaling.points] == [0.4, 1.0, 1.0]
    assert "The best rate per caller, which is the ideal, is B's: A has 40% of it." in compared.verdict
    assert "of the ideal is" not in terminal.render(compared)


def test_a_finding_of_both_ends_flattens_no_curve() -> None:
    """With a higher severity at the far end it is still in both."""
    one, other = document("max-concurrent-streams-control"), document("max-concurrent-streams")
    both = [f | {"severity": "info"} for f in other["findings"]]
    first = of_document(one | {"findings": both, "connections": [one["connections"][0] | {"max_concurrent_rpcs": 1}]})
    compared = compare([first, of_document(other), of_document(other)])
    assert compared.scaling is not None
    assert compared.scaling.points[-1].of_ideal < 0.8
    assert "max-concurrent-streams" not in compared.verdict


def test_nothing_that_grows_has_no_curve() -> None:
    compared = swept((4, 300.0), (4, 100.0), (4, 190.0))
    assert compared.scaling is None
    assert compared.verdict.count("A's throughput") == 2


def test_many_captures_fit() -> None:
    compared = swept(*[(n, 100.0 * min(n, 8)) for n in range(1, 31)])
    assert [run.label for run in compared.runs][25:28] == ["Z", "A1", "B1"]
    for width in (80, 100, 160):
        text = terminal.render(compared, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert "…" not in text
    assert label(52) == "A2"


# --fail-on


@pytest.mark.parametrize(
    "text",
    [
        "-",
        "latency",
        "latency:",
        "latency:x",
        "latency:nan",
        "latency:inf",
        "latency:0.5",
        "finding:no",
        "errors:0",
        "errors:-1",
        "grave",
        "p95:1.2",
        "throughput:1e999",
        "finding",
        ":",
        "p99:1.2+5",
        "p99:1.2+",
        "errors:0.1+1",
        "p99<5ms",
        "p99>5",
        "throughput>5",
        "finding>info",
        "packets>-1",
        "p99>" + "9" * 99 + "ms",
    ],
)
def test_rules_that_cannot_be_read(text: str) -> None:
    with pytest.raises(RuleError):
        parse(text, IDS)


def test_without_a_baseline_no_rule_is_offered_that_needs_one() -> None:
    with pytest.raises(RuleError, match=r"p99>50ms") as alone:
        parse("nope", IDS, baseline=False)
    with pytest.raises(RuleError, match=r"throughput:1\.2"):
        parse("nope", IDS)
    assert "throughput:1.2" not in str(alone.value)


@pytest.mark.parametrize(
    ("rule", "first", "second", "met"),
    [
        ("throughput:1.5", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("throughput:5", "max-concurrent-streams-control", "max-concurrent-streams", False),
        ("throughput:1", "max-concurrent-streams", "max-concurrent-streams-control", False),
        ("packets:1.6", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("packets:1.7", "max-concurrent-streams-control", "max-concurrent-streams", False),
        ("control:2", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("p99:1.2", "max-concurrent-streams", "max-concurrent-streams-control", True),
        ("p99:1.2+5ms", "max-concurrent-streams", "max-concurrent-streams-control", True),
        ("p99:1.2+6ms", "max-concurrent-streams", "max-concurrent-streams-control", False),
        ("packets:1.6+0.18", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("packets:1.6+0.2", "max-concurrent-streams-control", "max-concurrent-streams", False),
        ("connections:8", "ydb-unary-single-inflight8", "ydb-unary-multi-inflight8", True),
        ("connections:8+8", "ydb-unary-single-inflight8", "ydb-unary-multi-inflight8", False),
        ("connections>7", "max-concurrent-streams", "ydb-unary-multi-inflight8", True),
        ("connections>8", "max-concurrent-streams", "ydb-unary-multi-inflight8", False),
        ("p99>22ms", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("latency > 22.5 ms", "max-concurrent-streams-control", "max-concurrent-streams", False),
        ("throughput<500", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("throughput<400", "max-concurrent-streams-control", "max-concurrent-streams", False),
        ("errors>0.35", "max-concurrent-streams", "rpc-errors", True),
        ("errors>0.36", "max-concurrent-streams", "rpc-errors", False),
        ("control>0.14", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("p50:1.001", "max-concurrent-streams", "max-concurrent-streams-control", False),  # within chance
        ("critical", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("finding:max-concurrent-streams", "max-concurrent-streams-control", "max-concurrent-streams", True),
        ("finding:ping-storm", "max-concurrent-streams-control", "max-concurrent-streams", False),  # as before
        ("warning", "max-concurrent-streams", "max-concurrent-streams-control", False),  # vanishes
        ("errors:0.3", "max-concurrent-streams", "rpc-errors", True),
        ("errors:0.4", "max-concurrent-streams", "rpc-errors", False),
    ],
)
def test_rules(rule: str, first: str, second: str, met: bool) -> None:
    (outcome,) = judge([parse(rule, IDS)], runs([saved(first), saved(second)]))
    assert (outcome.met, outcome.judged) == (met, True), outcome.text


def test_what_baselines_have_in_common_with_a_capture_is_noise() -> None:
    first, other = saved("max-concurrent-streams-control"), saved("max-concurrent-streams")
    rules = [parse(text, IDS) for text in ("throughput:1.2", "finding:max-concurrent-streams", "p99:1.5")]
    alone, noisy = compare([first, other], rules), compare([first, other], rules, [first, other])
    assert [one.met for one in alone.outcomes] == [True, True, False]
    assert [one.met for one in noisy.outcomes] == [False] * 3
    assert "against one of the baselines" in noisy.outcomes[0].text
    assert (bool(alone.differences), noisy.differences) == (True, ())
    assert noisy.verdict == "B does not differ from all 3 baselines by 10% or more."
    assert any(note.startswith("2 more baselines like A") for note in noisy.notes)
    steady = compare([first, other], rules, [first, first])
    assert [one.met for one in steady.outcomes] == [True, True, False]
    assert "(against each of 3 baselines)" in steady.outcomes[0].text
    assert steady.differences == alone.differences


def test_a_limit_needs_figures() -> None:
    base = document("rpc-errors")
    (gone,) = runs([changed("rpc-errors", methods=[], totals=base["totals"] | {"messages": 0})])
    for text in ("p99>1s", "packets>9", "errors>0.9"):
        outcome = judge_alone(parse(text, IDS), gone)
        assert (outcome.met, outcome.judged) == (True, False), text


def test_what_cannot_be_judged_does_not_pass() -> None:
    """A method that is gone has no latency."""
    gone = runs([saved("impl-go"), saved("max-concurrent-streams")])
    (outcome,) = judge([parse("latency:1.2", IDS)], gone)
    assert (outcome.met, outcome.judged) == (True, False)
    assert "cannot be judged" in outcome.text
    assert set(METRICS) == {
        "latency",
        "p50",
        "p90",
        "p99",
        "throughput",
        "packets",
        "control",
        "connections",
        "errors",
        "finding",
    }


# Documents from elsewhere


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"schema": "grpcdiag.analysis/2"}',
        b"\xff\xfe{",
    ],
    ids=range(7),
)
def test_texts_that_are_no_document(text: bytes) -> None:
    with pytest.raises(analysis_json.DocumentError):
        analysis_json.read(text)


@pytest.mark.parametrize("number", ["NaN", "1e999", "9" * 31, "9" * 5000], ids=["nan", "infinite", "31", "5000"])
@pytest.mark.parametrize("field", ["rpcs", "share", "first_time_ns"])
def test_numbers_that_no_document_has(field: str, number: str) -> None:
    text = analysis_json.render(analyze(recording("rpc-errors").files))
    spoiled, places = re.subn(rf'"{field}": [^,\n]+', f'"{field}": {number}', text, count=1)
    assert places == 1
    with pytest.raises(analysis_json.DocumentError, match=r"digits|number of JSON"):
        analysis_json.read(spoiled.encode())


def test_absurd_figures_and_nasty_texts() -> None:
    nasty = "\x1b[31mred\x07\u202e<script>"
    base = document("max-concurrent-streams")
    huge = 10**29
    method = base["methods"][0] | {"method": nasty, "budget": {"server": huge}, "first_start_time_ns": -huge}
    finding = base["findings"][0] | {"id": nasty, "title": nasty, "lost_ns": huge, "metrics": {"at_limit_ns": "many"}}
    odd = changed(
        "max-concurrent-streams",
        files=[nasty],
        methods=[method],
        findings=[finding],
        budget={"server": huge, nasty: 1},
    )
    for both in ([odd, saved("max-concurrent-streams")], [saved("max-concurrent-streams"), odd], [odd, odd]):
        compared = compare(both, [parse("latency:1.1", IDS), parse("warning", IDS)])
        text = terminal.render(compared, width=80)
        assert not set(text) & set("\x1b\x07\u202e")
        assert max(map(len, text.splitlines())) <= 80
        standard_json.loads(json.render(compared))
        for page in (markdown.render(compared), html.render(compared)):
            assert not set(page) & set("\x1b\x07\u202e")


def instructions(work: Callable[[], object]) -> int:
    """How many bytecode instructions that takes: the same number on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_work_grows_with_the_document_alone() -> None:
    """As many methods, findings and connections as nothing stops a text from having."""
    base = document("rpc-errors")

    def work(number: int) -> int:
        large = changed(
            "rpc-errors",
            methods=[base["methods"][0] | {"method": f"/m/{n}"} for n in range(number)],
            findings=[base["findings"][0] | {"id": f"f{n}"} for n in range(number)],
            connections=base["connections"] * number,
        )
        return instructions(lambda: compare([large, large]))

    few, more, most = (work(number) for number in (100, 200, 400))
    assert most - more < 2.2 * (more - few)


def test_nothing_at_all() -> None:
    """A document of a capture with no span, no packets, no methods."""
    base = document("rpc-errors")
    empty = changed(
        "rpc-errors",
        methods=[],
        connections=[],
        findings=[],
        budget={},
        traffic=NO_TRAFFIC,
        totals=base["totals"] | dict.fromkeys(("connections", "rpcs", "messages", "other_streams"), 0),
        capture=base["capture"] | {"packets": 0, "first_time_ns": None, "last_time_ns": None},
    )
    rules = [
        parse(t, IDS) for t in ("latency:2", "throughput:2", "packets:2", "control:2", "errors:0.1", "finding:info")
    ]
    for documents in ([empty, empty], [empty, saved("rpc-errors")], [saved("rpc-errors"), empty], [empty] * 3):
        compared = compare(documents, rules)
        VALIDATOR.validate(standard_json.loads(json.render(compared)))
        terminal.render(compared, width=80, colour=True)
        assert markdown.render(compared) and html.render(compared)
