"""Times from one end of a clock to the other: every command ends as documented, and no number goes round."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from support import invoke

from grpcdiag.fixtures.bench import commands, floods

SHORT = (
    "analyze",
    "analyze-html",
    "analyze-both-ends",
    "rpcs-both-ends",
    "compare",
    "timeline-whole",
    "timeline-worst",
    "waits-csv",
    "export-csv",
    "scrub",
)
"""Commands that each take a way of their own through times."""
KINDS = sorted(floods.TIMES)
PAIRS = [(kind, name) for i, kind in enumerate(KINDS) for j, name in enumerate(SHORT) if (i + j) % 3 == 0]
"""A third of the commands for each capture and of the captures for each command; `make fuzz-commands` runs them all."""

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a command by its name on a capture of extreme times, and give what it wrote."""
    folder = tmp_path_factory.mktemp(request.param)
    path = floods.write(request.param, folder)

    def one(name: str) -> str:
        places = {"a": path, "b": path, "out": folder / name, "dataset": folder / "fleet"}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            done = invoke(commands.arguments(name, places))
        assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
        assert done.exit_code in commands.EXIT_CODES[name], done.output
        return done.stdout

    return one


@pytest.mark.parametrize(("run", "name"), PAIRS, indirect=["run"])
def test_every_command_ends_as_documented(run: Run, name: str) -> None:
    run(name)


@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_numbers_fit_64_bits(run: Run) -> None:
    def check(value: object) -> None:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for one in value:
                check(one)
        assert not isinstance(value, int) or -(1 << 63) <= value < 1 << 63

    check(json.loads(run("analyze-json")))


@pytest.mark.parametrize("run", KINDS, indirect=True)
def test_a_trace_holds_them(run: Run) -> None:
    pytest.importorskip("perfetto")
    run("analyze-perfetto")


@pytest.mark.parametrize("name", ["pcapng-years", "pcapng-two-clocks-apart"])
def test_a_recording_of_such_times_leaves_a_dataset_that_answers(name: str, tmp_path: Path) -> None:
    """One host's clock must not cost the reports of all others."""
    pytest.importorskip("duckdb")
    from grpcdiag.fleet import run
    from grpcdiag.fleet.answers import report
    from grpcdiag.fleet.engines.task import analyse

    class Inline:
        workers = 1

        def run(self, work: object, tasks: object) -> object:
            return map(analyse, tasks)  # type: ignore[call-overload]

    for host in ("web-1", "web-2"):
        (tmp_path / host).mkdir()
        floods.write(name, tmp_path / host).rename(tmp_path / host / "eth0.pcap")
    planned = run.plan([str(tmp_path / "web-1"), str(tmp_path / "web-2")], str(tmp_path / "dataset"))
    result = run.execute(planned, Inline(), lambda _: None)  # type: ignore[arg-type]
    assert [outcome.reason for outcome in result.outcomes] == [None, None]
    found = report.report(str(tmp_path / "dataset"))
    assert found.rpcs > 0
