"""Figures as a reader sees them."""

from __future__ import annotations

import pytest
from rich.style import Style

from grpcdiag.analyzer.model.text import count, duration, size, utc
from grpcdiag.reports.shared.drawing import CAUSE_STYLES, GOOD, SEVERITY_STYLES


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


@pytest.mark.parametrize(
    ("ns", "day_of", "text"),
    [
        (0, None, "1970-01-01 00:00:00.000000"),
        (1_795_305_004_858_945_999, None, "2026-11-21 23:50:04.858945"),
        (1_795_305_004_858_945_000, 1_795_200_000_000_000_000, "2026-11-21 23:50:04.858945"),
        (1_795_305_004_858_945_000, 1_795_304_000_000_000_000, "23:50:04.858945"),
        (-1, 0, "1969-12-31 23:59:59.999999"),
        ((1 << 63) - 1, None, "2262-04-11 23:47:16.854775"),
        (-(1 << 63), None, "1677-09-21 00:12:43.145224"),
    ],
)
def test_utc(ns: int, day_of: int | None, text: str) -> None:
    """With its date, unless another time shows the day."""
    assert utc(ns, day_of) == text


@pytest.mark.parametrize("style", sorted({*CAUSE_STYLES.values(), *SEVERITY_STYLES.values(), GOOD} - {"default"}))
def test_colours_are_readable_on_black_and_on_white(style: str) -> None:
    """A contrast of 3 or more (WCAG 2.2, 1.4.11), of colours that no terminal redefines."""
    colour = Style.parse(style).color
    assert colour is not None
    assert (colour.number or 0) >= 16
    parts = (channel / 255 for channel in colour.get_truecolor())
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    luminance = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    assert min(1.05 / (luminance + 0.05), (luminance + 0.05) / 0.05) >= 3
