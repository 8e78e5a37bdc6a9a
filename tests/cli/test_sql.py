"""The queries of docs/sql.md, each on a recorded capture and held against what is known from elsewhere."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import REPOSITORY, canonical_status, recorded, run_here

duckdb = pytest.importorskip("duckdb")

PAGE = (REPOSITORY / "docs" / "sql.md").read_text()
QUERIES = dict(re.findall(r"^## (.+?)\n(?:(?!^## ).)*?```sql\n(.*?)```", PAGE, flags=re.MULTILINE | re.DOTALL))
RTT = "rtt205-go-16000"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folders of exported captures by name, each exported once."""
    made: dict[tuple[str, str], Path] = {}

    def folder(name: str, format_: str) -> Path:
        if (name, format_) not in made:
            made[name, format_] = tmp_path_factory.mktemp("tables")
            outcome = run_here("export", recorded(f"{name}.pcap"), "-o", str(made[name, format_]), "--format", format_)
            assert outcome.code == 0, outcome.err
        return made[name, format_]

    return folder


@pytest.fixture
def ask(tables: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Answers to the query whose heading begins so, as dictionaries."""

    def answer(heading: str, name: str) -> list[dict[str, Any]]:
        (query,) = (text for title, text in QUERIES.items() if title.startswith(heading))
        monkeypatch.chdir(tables(name, "parquet"))
        found = duckdb.sql(query)
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]

    return answer


def analysis(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_here("analyze", "--json", recorded(f"{name}.pcap")).text)
    return found


def truth(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(recorded(f"{name}.truth.json")).read_text())
    return found


def table(command: str, name: str) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in run_here(command, recorded(f"{name}.pcap"), "--format", "jsonl").text.splitlines()
    ]


def test_there_are_ten() -> None:
    assert len(QUERIES) == 10
    assert PAGE.count("```sql") == 10


def test_causes_of_methods(ask: Any) -> None:
    """The client says 411 ms per call where the link takes 205: the other half is the congestion window."""
    rows = ask("Which method lost", RTT)
    budget = analysis(RTT)["methods"][0]["budget"]
    assert {row["cause"]: round(row["ms"] * 1e6) for row in rows} == {cause: ns for cause, ns in budget.items() if ns}
    assert rows[0]["cause"] == "congestion_window" and rows[0]["percent"] == pytest.approx(50, abs=1)
    assert sum(row["ms"] for row in rows) == pytest.approx(sum(truth(RTT)["client_report"]["latency_ms"]), rel=0.01)


def test_slowest_rpcs(ask: Any) -> None:
    rows = ask("Which RPCs were the slowest", "impl-java")
    told = truth("impl-java")["client_report"]["latency_ms"]
    down = next(row for row in rows if row["method"] == "/lab.v1.Lab/Down")
    assert down["ms"] == pytest.approx(told["Down"], abs=15)
    slowest = sorted(table("rpcs", "impl-java"), key=lambda row: -row["duration_ns"])
    assert [row["stream"] for row in rows] == [row["stream"] for row in slowest][:10]
    assert rows[0]["wireshark"] == (
        f"frame.number >= {slowest[0]['first_packet']} and frame.number <= {slowest[0]['last_packet']} "
        f"and http2.streamid == {slowest[0]['stream']}"
    )


def test_pauses_between_bursts(ask: Any) -> None:
    """One call per second after the one before it, which takes 411 ms."""
    (row,) = ask("How long were the pauses", RTT)
    assert (row["bursts"], row["rpcs"]) == (5, 5)
    assert row["median_pause_ms"] == pytest.approx(1411, abs=5)


def test_pings(ask: Any) -> None:
    """Counted by other means: a PING and its acknowledgement are two frames."""
    rows = ask("How many PINGs", "rpc-errors")
    counted = truth("rpc-errors")["raw_count"]
    assert sum(row["pings"] + row["acks"] for row in rows) == counted["frames_by_type"]["PING"] == 996
    by_side = {row["direction"]: row for row in rows}
    assert by_side["client"]["pings"] == by_side["server"]["acks"]
    assert by_side["client"]["pings_per_message"] == pytest.approx(
        by_side["client"]["pings"] / counted["grpc_messages_both_directions"]
    )
    assert by_side["client"]["pings_per_s"] > 100


def test_windows_at_stops(ask: Any) -> None:
    """Ten segments of 1,408 bytes are in flight when the sender stops; no other window binds."""
    (row,) = ask("What was in flight", RTT)
    assert (row["direction"], row["cause"], row["waits"]) == ("client", "congestion_window", 5)
    assert row["in_flight"] == row["congestion_window"] == 14_080
    assert min(row["receive_window"], row["stream_window"], row["connection_window"]) > 14_080
    (stall,) = (row for row in ask("What was in flight", "lab/stream-window-stall") if row["cause"] == "stream_window")
    assert stall["stream_window"] == 0


def test_packets_per_message(ask: Any) -> None:
    """16,003 bytes in segments of 1,408 are twelve packets."""
    rows = {row["direction"]: row for row in ask("How many packets", RTT)}
    traffic = {side: analysis(RTT)["traffic"][side] for side in ("client", "server")}
    for side, row in rows.items():
        assert (row["packets"], row["messages"]) == (traffic[side]["payload_packets"], traffic[side]["messages"])
    assert rows["client"]["packets_per_message"] > 12
    assert rows["client"]["useful_share"] == pytest.approx(16_003 * 5 / traffic["client"]["payload_bytes"])


def test_latency_by_open_rpcs(ask: Any) -> None:
    """The server allows ten streams at a time, and its control a hundred to the fifty that the client makes."""
    limited, free = (
        ask("Does latency grow", name) for name in ("max-concurrent-streams", "max-concurrent-streams-control")
    )
    assert max(row["open"] for row in limited) == 10
    assert max(row["open"] for row in free) == 50
    assert sum(row["rpcs"] for row in limited) == 1000


def test_failures(ask: Any) -> None:
    rows = ask("Which RPCs failed", "rpc-errors")
    told = truth("rpc-errors")["client_report"]["status"]
    expected = {canonical_status(name): n for name, n in told.items() if name != "0 OK"}
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["status"]] += row["rpcs"]
    assert counts == expected
    late = ask("Which RPCs failed", "deadline-exceeded")
    assert {row["status"] for row in late} <= {"DEADLINE_EXCEEDED", "CANCELLED", "not seen"}


def test_retransmissions(ask: Any) -> None:
    rows = ask("Which packets were retransmitted", "truncated")
    packets = [row for row in table("packets", "truncated") if row["note"] == "retransmission"]
    assert [row["packet"] for row in rows] == [row["packet"] for row in packets]
    calls = table("rpcs", "truncated")
    for row, packet in zip(rows, packets, strict=True):
        open_then = [
            call["stream"]
            for call in calls
            if call["connection"] == packet["connection"]
            and call["start_time_ns"] <= packet["time_ns"] <= call["start_time_ns"] + call["duration_ns"]
        ]
        assert row["open_rpcs"] == len(open_then)
        assert not open_then or row["streams"] == sorted(open_then)


def test_evidence(ask: Any) -> None:
    rows = ask("What is in the packets", RTT)
    expected = [(f["id"], e["packet"], e["what"]) for f in analysis(RTT)["findings"] for e in f["evidence"]]
    assert sorted((row["id"], row["packet"], row["what"]) for row in rows) == sorted(expected)
    ack = next(row for row in rows if row["packet"] == 55)
    assert (ack["direction"], ack["payload_bytes"], ack["flags"], ack["frames_ended"]) == ("server", 0, "ACK", None)


def test_they_run_on_csv_too(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but those that need types: CSV has none for `budget`, nor for a column without any value."""
    monkeypatch.chdir(tables(RTT, "csv"))
    for title, query in QUERIES.items():
        if "budget" not in query and "deadline_ns" not in query:
            found = duckdb.sql(query.replace(".parquet", ".csv"))
            assert found.columns, title
