"""Who is slow, why, since when: the report's answers against captures and rows whose answers are known."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from html import escape
from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest

pytest.importorskip("fsspec")
from fleets import Inline, change_sums, database, fleet, split
from msgspec.structs import replace
from support import REPOSITORY, recorded, run_here

from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.two_captures import rpc_budgets
from grpcdiag.fixtures.bench.fleet import rows
from grpcdiag.fixtures.synthetic.words import S
from grpcdiag.fleet.answers import html
from grpcdiag.fleet.answers.against import against
from grpcdiag.fleet.answers.edges import Unjoined
from grpcdiag.fleet.answers.losses import Loser
from grpcdiag.fleet.answers.report import Report, _find_failing, report
from grpcdiag.fleet.answers.terminal import render
from grpcdiag.fleet.answers.text import _say_what_fails, answers
from grpcdiag.fleet.dataset import sums
from grpcdiag.reports.html import page as html_page

SLOW = "rtt205-go-16000.pcap"


def translated(content: bytes) -> bytes:
    """A capture behind address translation: the client has another address."""
    assert content.count(bytes([10, 77, 0, 1])) > 50
    return content.replace(bytes([10, 77, 0, 1]), bytes([192, 0, 2, 9]))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of both ends of a slow connection, the server's behind address translation."""
    folder = tmp_path_factory.mktemp("both")
    for host in ("web-1", "db-1"):
        (folder / "captures" / host).mkdir(parents=True)
    shutil.copy(recorded(SLOW), folder / "captures" / "web-1" / "eth0.pcap")
    server = Path(recorded("rtt205-go-16000.server.pcap")).read_bytes()
    (folder / "captures" / "db-1" / "eth0.pcap").write_bytes(translated(server))
    _, told = fleet("analyze", str(folder / "captures"), "-o", str(folder / "dataset"), "--workers", "1")
    assert "5 RPCs recorded at both ends" in told
    return folder / "dataset"


@pytest.fixture(scope="module")
def of_both(both: Path) -> Report:
    return report(str(both))


@pytest.mark.parametrize(
    ("cause", "summed", "hosts"),
    [
        ("peer_unreachable", True, "*"),
        ("peer_unreachable", True, "web-1"),
        ("network_queue", False, "*"),
        ("capture_gap", False, "web-1"),
    ],
)
def test_a_dataset_of_a_version_without_a_cause_reads(
    both: Path, of_both: Report, tmp_path: Path, cause: str, summed: bool, hosts: str
) -> None:
    """Whole datasets, and those to which this version added recordings; no RPC of them spent time on the cause."""
    older = tmp_path / "dataset"
    shutil.copytree(both, older)
    written = [
        *older.glob(f"*/hour=*/{hosts.rstrip('*')}*.parquet"),
        *(older.glob("_summary/*") if hosts == "*" else ()),
    ]
    lacking = 0
    for path in written:
        frame = pl.read_parquet(path, hive_partitioning=False).drop("verdict", "explanation", "proxy", strict=False)
        if "budget" in frame.columns:
            kept = [field.name for field in frame.schema["budget"].fields if field.name != cause]  # type: ignore[attr-defined]
            kept_fields = [pl.col("budget").struct.field(name) for name in kept]
            frame.with_columns(pl.struct(kept_fields).alias("budget")).write_parquet(path)
            lacking += 1
    assert lacking >= 2
    if not summed:
        shutil.rmtree(older / "_summary")
    found, new = report(str(older)), of_both
    assert cause not in new.budget
    assert replace(found, dataset=new.dataset, causes=()) == replace(new, causes=())
    assert [one.id for one in found.causes] == [one.id for one in new.causes]


def test_rpcs_of_both_ends_are_counted_once_and_divided(of_both: Report) -> None:
    found = of_both
    alone = analyze([recorded(SLOW)])
    assert (found.rpcs, found.duration_ns) == (5, sum(alone.budget.values()))
    (way,) = found.ways
    assert (way.client_host, way.server_host, way.rpcs) == ("web-1", "db-1", 5)
    assert [pair.name for pair in found.pairs] == ["web-1 -> db-1:50051"]
    assert found.causes[0].id == "slow-start-after-idle" and found.causes[0].findings == 1
    assert found.causes[0].lost_ns == next(f.lost_ns for f in alone.findings if f.id == "slow-start-after-idle")


def test_the_division_is_near_that_of_the_packets(both: Path) -> None:
    with database() as opened:
        query = f"SELECT budget, duration_ns FROM '{both}/_summary/ends.*.parquet' ORDER BY start_time_ns"
        told = opened.execute(query).fetchall()
    packets = rpc_budgets([[recorded(SLOW)], [recorded("rtt205-go-16000.server.pcap")]])
    assert all(sum(budget.values()) == duration for budget, duration in told)
    for name, place in (("network_up", -2), ("network_down", -1)):
        assert sum(budget[name] for budget, _ in told) == pytest.approx(packets.budgets[:, place].sum(), rel=0.01)


def test_the_commands_open_the_finding(of_both: Report) -> None:
    (command,) = of_both.causes[0].worst.commands
    opened = run_here(*shlex.split(command)[1:])
    assert opened.code == 0
    assert "congestion_window" in opened.text


def test_the_report_is_text_and_json(both: Path) -> None:
    out, _ = fleet("report", str(both))
    assert "slow-start-after-idle" in out and "linux: sysctl -w net.ipv4.tcp_slow_start_after_idle=0" in out
    assert re.search(r"/lab.v1.Lab/Echo +5 +2.05 s .* 50% +50% congestion_window", out)
    assert "\x1b" not in out
    told = json.loads(fleet("report", str(both), "--json")[0])
    assert told["schema"] == "grpcdiag.fleet/1"
    assert told["methods"][0]["budget"]["congestion_window"] == told["lost_ns"]


@pytest.mark.parametrize("width", [60, 100, 160])
def test_no_column_is_cut(of_both: Report, of_shop: Report, width: int) -> None:
    for found, name, share in ((of_both, "lab.v1.Lab ", "50%"), (of_shop, "shop.v1.Pay ", "59%")):
        text = render(found, width=width)
        lines = [line for line in text.splitlines() if "grpcdiag " not in line]
        assert max(map(len, lines)) <= width
        (row,) = (line for line in lines if line.startswith((f" {name}", f"  {name}")))
        assert row.rstrip().endswith(f"{share} congestion_window")
        assert "failed" in text or found == of_both or width < 110


def test_the_page_shows_the_same_and_loads_nothing(both: Path, of_both: Report, tmp_path: Path) -> None:
    fleet("report", str(both), "--html", "-o", str(tmp_path / "report.html"))
    page = (tmp_path / "report.html").read_text()
    told = of_both
    for text in (told.answers.who, told.answers.why, "slow-start-after-idle", "web-1 → db-1:50051", "103 ms"):
        assert escape(text) in page
    assert "default-src 'none'" in page
    assert (
        page.count("<script") == 1
        and f"'{html_page.policy_hash(page.split('<script>')[1].split('</script>')[0])}'" in page
    )
    assert not re.search(r"<link rel=\"style|src=|url\(|@import|href=\"http", page)
    fleet("report", str(both), "--html", "--json", code=2)


def test_names_do_not_act_in_the_page(of_both: Report) -> None:
    found = of_both
    bad = "<script>alert(1)</script>\x1b[31m\u202e"
    hostile = replace(
        found,
        dataset=bad,
        answers=replace(found.answers, who=bad),
        methods=(replace(found.methods[0], name=bad),),
        service_map=replace(
            found.service_map,
            edges=(replace(found.service_map.edges[0], client=bad, server=bad, service=bad, proxy=bad),),
            unjoined=Unjoined(host=bad, method=bad, rpcs=3, hosts=1),
        ),
        causes=(replace(found.causes[0], remedy=bad, worst=replace(found.causes[0].worst, host=bad, title=bad)),),
    )
    page = html.render(hostile)
    assert page.count("<script") == 1 and "\x1b" not in page and "\u202e" not in page
    assert page.count("&lt;script&gt;") >= 6
    text = render(hostile)
    assert "\x1b" not in text and "\u202e" not in text


def test_names_do_not_act_in_the_page_of_changes(both: Path) -> None:
    bad = "<script>alert(1)</script>\x1b[31m\u202e"
    every = report(str(both), None)
    found = against(every, replace(every, dataset=bad, methods=()))
    hostile = replace(found, methods=(replace(found.methods[0], name=bad),))
    page = html.render_against(hostile)
    assert page.count("<script") == 1 and "\x1b" not in page and "\u202e" not in page
    assert page.count("&lt;script&gt;") == 2


def test_a_page_of_long_time_has_columns_to_its_measure(of_both: Report) -> None:
    found = of_both
    slot = found.slots[0]
    many = tuple(replace(slot, time_ns=slot.time_ns + k * 300_000_000_000) for k in (0, 1, 7, 5_000))
    page = html.render(replace(found, slots=many))
    assert len(re.findall("<g>", page)) == 2  # the first three are one
    assert html.render(replace(found, slots=(slot,))).count("fewer than two intervals of five minutes") == 2


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset of many RPCs of ten hosts, of which one method is slow from half past on."""
    dataset = tmp_path_factory.mktemp("shop") / "dataset"
    rows(dataset, 100_000, 10)
    return str(dataset)


@pytest.fixture(scope="module")
def of_shop(shop: str) -> Report:
    return report(shop)


@pytest.fixture(scope="module")
def all_of_shop(shop: str) -> Report:
    return report(shop, None)


def test_the_three_questions_have_answers(of_shop: Report) -> None:
    told = of_shop.answers
    assert told.who.startswith("/shop.v1.Pay/List3 was blocked longest")
    assert told.why.startswith("slow-start-after-idle costs most: 10.0 s, 10 findings on 10 hosts.")
    assert told.since and "congestion_window changed most" in told.since
    assert "since 2026-07-01 10:30 UTC (± 5 min; by chance: about 1 in 500), RPCs are" in told.since


@pytest.mark.parametrize(("others", "told"), [(0, True), (3, True), (4, False)])
def test_most_of_a_method_is_from_a_pair_only_if_it_must_be(others: int, told: bool) -> None:
    """The method lost 10 s, a pair 9 s: what other methods lost may be of that pair."""
    budget = {"congestion_window": 10 * S}
    row = Loser(
        name="/a.B/C",
        rpcs=1,
        failed_rpcs=0,
        duration_ns=20 * S,
        p50_ns=None,
        p99_ns=None,
        lost_ns=10 * S,
        cause="congestion_window",
        budget=budget,
    )
    pair = replace(row, name="a -> b", lost_ns=9 * S)
    said = answers([row], [pair], [], {"congestion_window": (10 + others) * S, "server": 90 * S}, None, 1)
    assert ("most of it from a -> b" in said.who) == told


def test_intervals_without_rpcs_are_blank(of_both: Report) -> None:
    found = of_both
    slots = tuple(replace(found.slots[0], time_ns=k * 300_000_000_000) for k in (0, 1, 4))
    (line,) = (line for line in render(replace(found, slots=slots)).splitlines() if line.startswith("  all "))
    assert "  all     ██  █  " in line
    many = tuple(replace(found.slots[0], time_ns=k * 300_000_000_000) for k in (0, 10**9))
    (line,) = (line for line in render(replace(found, slots=many)).splitlines() if line.startswith("  all "))
    assert f"  all     █{' ' * 58}█" in line or f"  all     █{' ' * 59}█" in line


def test_who_takes_most_time_is_told_even_if_it_waits_for_nothing(shop: str, all_of_shop: Report) -> None:
    names = [loser.name for loser in report(shop, 2).methods]
    every = all_of_shop.methods
    assert "/shop.v1.Pay/List3" in names
    assert max(every, key=lambda one: (one.duration_ns, one.name)).name in names


def test_what_changed_between_two_datasets(both: Path, tmp_path: Path) -> None:
    (tmp_path / "captures" / "web-1").mkdir(parents=True)
    shutil.copy(recorded("rtt205-go-14000.pcap"), tmp_path / "captures" / "web-1" / "eth0.pcap")
    fleet("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"), "--workers", "1")
    told = json.loads(fleet("report", str(both), "--against", str(tmp_path / "dataset"), "--json")[0])
    (change,) = told["methods"]
    assert told["every"]["cause"] == "congestion_window" and told["every"]["rpcs"] == 5
    assert change["cause"] == "congestion_window"
    lost = next(f.lost_ns for f in analyze([recorded(SLOW)]).findings if f.id == "slow-start-after-idle")
    assert lost and change["cause_ns"] == pytest.approx(lost / 5, rel=0.05)
    assert change["after_ns"] - change["before_ns"] == pytest.approx(lost / 5, rel=0.05)
    finding = next(one for one in told["findings"] if one["id"] == "slow-start-after-idle")
    assert (finding["findings_before"], finding["findings"]) == (0, 1)
    out, _ = fleet("report", str(both), "--against", str(tmp_path / "dataset"))
    assert re.search(r"/lab.v1.Lab/Echo .*\+\d+% .*congestion_window \+164 ms", out)
    told = "5 RPCs took 411 ms each; before, 5 RPCs took 248 ms each (+65%). congestion_window changed most (+164 ms)."
    assert told in " ".join(out.split())
    page, _ = fleet("report", str(both), "--against", str(tmp_path / "dataset"), "--html")
    assert told in page and 'class="verdict warning"' in page
    assert "/lab.v1.Lab/Echo</bdi></th>" in page and "congestion_window +164 ms" in page
    assert re.search(r"slow-start-after-idle</th><td class=\"n\">0</td><td class=\"n\">1</td>", page)
    assert "default-src 'none'" in page and page.count("<script") == 1
    back, _ = fleet("report", str(tmp_path / "dataset"), "--against", str(both), "--html")
    assert 'class="verdict fine"' in back and "congestion_window -164 ms" in back
    same, _ = fleet("report", str(both), "--against", str(both), "--html")
    assert "no mean time per RPC differs by more than 10 %" in same and "<h2>Methods</h2>" not in same


def test_many_rpcs_tell_who_why_and_since_when(of_shop: Report) -> None:
    found = of_shop
    assert found.rpcs == 100_000
    assert found.services[0].name == "shop.v1.Pay" and found.methods[0].name == "/shop.v1.Pay/List3"
    change = found.methods[0].since
    assert change and change.cause == "congestion_window"
    assert change.time_ns == 1_782_900_000_000_000_000 + 1_800_000_000_000
    assert found.methods[1].since is None
    assert found.methods[0].p99_ns == pytest.approx(208_000_000, rel=0.1)


def test_recordings_without_rpcs_have_a_report(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    shutil.copy(recorded("tls13-go.pcap"), tmp_path / "captures" / "web-1_eth0.pcap")
    fleet("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"), code=4)
    found = report(str(tmp_path / "dataset"))
    assert found.answers.who == "There are no RPCs in the recordings."
    assert found.answers.why.startswith("capture-quality: 198,380 bytes are TLS that was not decrypted")
    for text in (render(found), html.render(found)):
        assert "198,380 bytes are TLS" in text and "of RPC time went" not in text
    fleet("report", str(tmp_path / "dataset"), "--against", str(tmp_path / "dataset"))


def test_what_is_no_dataset_is_told(tmp_path: Path) -> None:
    _, told = fleet("report", str(tmp_path), code=3)
    assert "not a dataset" in told


PAGE = REPOSITORY / "docs" / "fleet.md"


@pytest.fixture(scope="module")
def compacted(both: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    dataset = shutil.copytree(both, tmp_path_factory.mktemp("compacted") / "dataset")
    fleet("compact", str(dataset), "--finished")
    return dataset


@pytest.mark.parametrize("number", range(len(re.findall(r"```sql", PAGE.read_text()))))
def test_the_queries_of_the_page_run(both: Path, compacted: Path, number: int) -> None:
    """Also when the dataset is compacted."""
    query = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)[number]
    with database() as opened:
        rows = opened.execute(query.replace("dataset/", f"{both}/")).fetchall()
        assert rows and opened.execute(query.replace("dataset/", f"{compacted}/")).fetchall() == rows


@pytest.mark.parametrize("number", range(len(re.findall(r"```python\nimport", PAGE.read_text()))))
def test_other_engines_read_the_tables(both: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    code = re.findall(r"```python\n(import .*?)```", PAGE.read_text(), re.DOTALL)[number]
    exec(code.replace("dataset/", f"{both}/"), {})
    shown = capsys.readouterr().out
    assert "web-1" in shown and "db-1" in shown


def test_what_fails_comes_first_with_its_hosts_and_its_beginning(tmp_path: Path) -> None:
    for number, name in enumerate(("rpc-errors.pcap", "rpc-errors.pcap", "impl-go.pcap")):
        (tmp_path / "captures" / f"web-{number}").mkdir(parents=True)
        content = Path(recorded(name)).read_bytes()
        (tmp_path / "captures" / f"web-{number}" / "eth0.pcap").write_bytes(content)
    fleet("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"))
    found = report(str(tmp_path / "dataset"), 1)
    worst = max(report(str(tmp_path / "dataset")).methods, key=lambda one: one.failed_rpcs)
    told = found.answers.fails or ""
    assert told.startswith(f"{worst.name}: {worst.failed_rpcs:,} of {worst.rpcs:,} RPCs failed ")
    assert "the first after" in told and " -> " in told
    text = render(found)
    assert text.index("what fails") < text.index("what is slow")
    page = html.render(found)
    assert page.index("What fails") < page.index("What is slow") and escape(told) in page


@pytest.mark.parametrize(
    ("failed", "of_hour", "hour"), [(30, 600, 5), (9, 300, None), (12, 601, None), (120, 600, None)]
)
def test_an_hour_in_which_many_failed_is_named(failed: int, of_hour: int, hour: int | None) -> None:
    """From ten RPCs and 2 % of the method's in that hour; if 1 % of all failed, the whole is named instead."""
    begin = 1_782_900_000_000_000_000 // sums.HOUR_NS * sums.HOUR_NS
    with sums.connect() as database:
        database.execute(
            f"""CREATE TEMP TABLE t AS
                SELECT 'List' AS method, 'a -> b' AS pair, {begin} + hour * {sums.HOUR_NS} AS slot_time_ns,
                       {of_hour} AS rpcs, if(hour = 5, {failed}, 0) AS failed_rpcs FROM range(19) r(hour)"""
        )
        found = _find_failing(database)
    assert (found is not None) == (hour is not None or failed == 120)
    if found:
        assert (found.failed_rpcs, found.rpcs) == (failed, of_hour if hour else 19 * of_hour)
        assert found.hour_ns == (begin + hour * sums.HOUR_NS if hour else None)
        assert (" failed between 2026-07-01 15:00 and 2026-07-01 16:00 UTC (5%)" in _say_what_fails(found)) == bool(
            hour
        )


def test_rpcs_that_the_end_of_a_series_cuts_have_not_failed(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    content = Path(recorded(SLOW)).read_bytes()
    for share in (3, 2):
        (tmp_path / "captures" / f"web-{share}_eth0.pcap").write_bytes(content[: len(content) // share])
    fleet("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"))
    found = report(str(tmp_path / "dataset"))
    rows = pl.read_parquet(f"{tmp_path}/dataset/rpcs/**/*.parquet")
    assert rows.filter(~pl.col("complete")).height == 2 and found.rpcs > 2
    assert not found.failed_rpcs and found.answers.fails is None
    assert "what fails" not in render(found)


@pytest.mark.parametrize("missing", [0, 2, 5])
def test_rpcs_that_a_missing_file_cuts_have_not_failed(tmp_path: Path, missing: int) -> None:
    """Analyzed at once, and file after file; every RPC of the capture went well."""
    split(Path(recorded("max-concurrent-streams.pcap")).read_bytes(), tmp_path, "eth0.pcap", 6)
    pieces = sorted(tmp_path.glob("eth0.pcap*"))
    del pieces[missing]
    for name, groups in (("once", [pieces]), ("grown", [[piece] for piece in pieces])):
        (tmp_path / name / "web-1").mkdir(parents=True)
        for some in groups:
            for piece in some:
                shutil.copy(piece, tmp_path / name / "web-1" / piece.name)
            assert share_code(tmp_path / name, tmp_path / f"{name}.dataset") in (0, 4)
        found = report(str(tmp_path / f"{name}.dataset"))
        assert found.rpcs and not found.failed_rpcs and found.answers.fails is None


def share_code(captures: Path, dataset: Path) -> int:
    """The exit code of a share of the work that is all of it: 4 as long as no file has RPCs."""
    with patch("grpcdiag.fleet.engines.engine", lambda *_: Inline()):
        return run_here("fleet", "analyze", str(captures), "-o", str(dataset), "--shard", "0/1").code


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_headline_does_not_depend_on_the_rows_listed(shop: str, all_of_shop: Report, most: int) -> None:
    """Also where the method that was blocked longest is not the one that takes most time."""
    assert report(shop, most).answers == all_of_shop.answers


def test_one_row_is_enough_for_both_methods_of_the_headline(tmp_path: Path) -> None:
    rows(tmp_path / "dataset", 4_000, 4)
    more = "if(method = '/shop.v1.Cart/Get0', 9 * duration_ns, 0)"
    budget = f"struct_update(budget, server := (budget.server + {more})::BIGINT) AS budget"
    change_sums(tmp_path / "dataset", f"(duration_ns + {more})::BIGINT AS duration_ns, {budget}")
    told = report(str(tmp_path / "dataset"), 1).answers
    assert told == report(str(tmp_path / "dataset"), None).answers
    assert "was blocked longest" in told.who and "/shop.v1.Cart/Get0 takes most time" in told.who


def test_hosts_have_the_names_that_are_given(both: Path, tmp_path: Path) -> None:
    names = tmp_path / "hosts"
    names.write_text("# the shop\n10.77.0.2 pay pay.example\nweb-1 \x1b[1mfront  # not in DNS\nweb-1 later\nalone\n")
    text = fleet("report", str(both), "--names", str(names))[0]
    assert "front -> pay:50051" in text and "web-1 -> " not in text and "later" not in text and "\x1b" not in text
    told = json.loads(fleet("report", str(both), "--names", str(names), "--json")[0])
    assert told["causes"][0]["worst"]["host"].endswith("front")
    assert "\x1b" not in fleet("report", str(both), "--names", str(names), "--html")[0]
    assert "no such file" in fleet("report", str(both), "--names", str(tmp_path / "none"), code=3)[1].lower()


def test_addresses_of_version_6_have_the_names_of_any_of_their_forms(tmp_path: Path) -> None:
    (tmp_path / "captures").mkdir()
    shutil.copy(recorded("ipv6.pcap"), tmp_path / "captures" / "web-1_eth0.pcap")
    names = tmp_path / "hosts"
    names.write_text("fd00:78::1 front\nFD00:0078:0:0::1 later\nfd00:78:0:0:0:0:0:2 pay pay.example\n")
    fleet("analyze", str(tmp_path / "captures"), "-o", str(tmp_path / "dataset"))
    text = fleet("report", str(tmp_path / "dataset"), "--names", str(names))[0]
    assert "front -> pay:50051" in text and "later" not in text
