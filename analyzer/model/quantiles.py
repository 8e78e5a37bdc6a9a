"""A distribution of durations."""

from msgspec import Struct

from ..tables.durations import Count


class Quantiles(Struct, frozen=True):
    """A distribution of durations in nanoseconds; quantiles are values that occurred (nearest rank)."""

    min: Count
    p50: Count
    p90: Count
    p99: Count
    p999: Count
    max: Count
    mean: Count
