"""Settings that all tests share."""

from __future__ import annotations

import gc
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's import takes twice the time with threads, in commands too

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "stable",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("search", settings.get_profile("stable"), derandomize=False, max_examples=1000)
os.environ.setdefault("GRPCDIAG_STORE_WAIT_S", "0.01")  # stores that fail in tests fail at once
settings.load_profile(os.environ.get("GRPCDIAG_HYPOTHESIS", "stable"))


LONGEST = {"test_adding_a_detector.py", "test_html_browser.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest: no worker is alone with it at the end, and one has all tests of a browser."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    """Keep the collector off the 11,000 tests, which stay: else it goes through all of them again and again."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write tests/snapshots anew instead of comparing")


@pytest.fixture
def update_snapshots(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-snapshots")) or os.environ.get("GRPCDIAG_UPDATE_SNAPSHOTS") == "1"
