"""Folders that tests of recording share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("recorder")
from recorder import NOBODY  # noqa: E402


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder of the user `nobody`, inside one that everybody can reach."""
    if os.geteuid() != 0:
        pytest.skip("only root acts for users")
    with tempfile.TemporaryDirectory(prefix="grpcdiag-test-") as outer:
        Path(outer).chmod(0o755)
        home = Path(outer) / "home"
        home.mkdir()
        os.chown(home, NOBODY, NOBODY)
        yield home
