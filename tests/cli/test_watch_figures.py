"""The figures of `watch --json`: at the end of a short capture they are those that `analyze` gives for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import recorded
from test_watch import totals, watch


@pytest.mark.parametrize("name", ["rpc-errors.pcap", "lab/hung-rpc.pcap"])
def test_each_method_has_the_figures_of_the_analysis(name: str) -> None:
    """One capture has failed calls, the other one calls without an end."""
    file = Path(recorded(name))
    intervals, _ = watch(stream=file.read_bytes())
    whole = totals(file)
    seconds = (whole["capture"]["last_time_ns"] - whole["capture"]["first_time_ns"]) / 1e9
    assert seconds < 10, "all of it is in the window"
    found = {one["method"]: one for one in intervals[-1]["methods"]}
    for one in whole["methods"]:
        statuses, figures = one["statuses"], found.pop(one["method"])
        ended = one["rpcs"] - statuses.get("not_seen", 0)
        assert figures["ended"] == ended
        assert figures["in_flight"] == one["rpcs"] - ended
        assert figures["failed"] == ended - statuses.get("OK", 0)
        assert figures["calls_per_s"] == pytest.approx(ended / seconds)
        assert figures["budget"] == one["budget"]
        for quantile in ("p50", "p99"):
            assert figures[f"{quantile}_ns"]["10s"] == one["latency_ns"][quantile]
    assert not found
