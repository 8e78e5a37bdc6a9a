"""Figures as a reader sees them."""

from __future__ import annotations

import pytest

from grpcdiag.analyzer.model.text import count, duration, size


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (43_210, "43.2 µs"),
        (999_499, "999 µs"),
        (1_000_000, "1.00 ms"),
        (205_400_000, "205 ms"),
        (2_050_000_000, "2.05 s"),
        (65_000_000_000, "65.0 s"),
        (1_234_000_000_000, "1,234 s"),
    ],
)
def test_duration(ns: int | None, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("ns", "text"), [(999_600, "1.00 ms"), (999_999_999, "1.00 s"), (99_960, "100 µs"), (9_999, "10.0 µs")]
)
def test_rounding_keeps_three_digits_across_units(ns: int, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.00 kB"), (88_200, "88.2 kB"), (7_900_000, "7.90 MB"), (2e9, "2.00 GB")],
)
def test_size(bytes_: float, text: str) -> None:
    assert size(bytes_) == text


def test_count() -> None:
    assert count(1, "packet") == "1 packet"
    assert count(0, "packet") == "0 packets"
    assert count(1_234_567, "RPC") == "1,234,567 RPCs"
    assert count(2, "box", "boxes") == "2 boxes"
