"""Rows of the dataset, divided by hour."""

from __future__ import annotations

import numpy as np

from grpcdiag.fleet.dataset import frames, sums
from grpcdiag.reports.tables.frame import Frame, Lists, Numbers, Texts


def test_an_hour_has_its_own_rows_and_texts_alone() -> None:
    """Texts of all hours in each hour's file would cost connections times hours."""
    number, hours = 1_000, 100
    order = np.random.default_rng(7).permutation(number)
    times = (order % hours).astype(np.int64) * sums.HOUR_NS
    texts = [*(f"10.0.0.1:{at}" for at in range(number)), None]
    codes = np.arange(number, dtype=np.uint32)
    codes[::10], codes[5::10] = number, number + 7  # null in both forms
    every = Frame(
        {
            "at": Numbers(np.arange(number)),
            "client": Texts(codes, texts),
            "marks": Lists([[at] for at in range(number)]),
        }
    )
    wanted = dict(zip(range(number), every.columns["client"].to_list(), strict=True))
    seen: list[int] = []
    for table, hour, _, pieces in frames._by_hour("connections", times, frames._all(lambda: every), ("one", "web-1")):
        (piece,) = pieces()
        at = piece.columns["at"].to_list()
        assert (table, {frames.hour_name(int(times[row]) // sums.HOUR_NS) for row in at}) == ("connections", {hour})
        assert at == sorted(at) and set(piece.columns["host"].to_list()) == {"web-1"}
        assert piece.columns["client"].to_list() == [wanted[row] for row in at]
        assert piece.columns["marks"].to_list() == [[row] for row in at]
        assert len(piece.columns["client"].texts) <= len(piece)
        seen += at
    assert sorted(seen) == list(range(number))
