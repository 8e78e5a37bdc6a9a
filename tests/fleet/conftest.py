"""What all tests of fleets share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest.mock import patch

import duckdb
import pytest

_real = duckdb.connect


@cache
def _opened(memory: str, threads: int) -> duckdb.DuckDBPyConnection:
    return _real(config={"memory_limit": memory, "threads": threads, "temp_directory": ""})


def _connect(*given: Any, config: dict[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """Share a database that has the memory and threads asked for; what it makes is temporary, and its own."""
    if config and not given:
        return _opened(config["memory_limit"], config["threads"]).cursor()
    return _real(*given, config=config or {})


@pytest.fixture(autouse=True, scope="module")
def one_database() -> Iterator[None]:
    """Open no database for each report, which takes 10 ms; commands that run in processes of their own do."""
    with patch("duckdb.connect", _connect):
        yield
