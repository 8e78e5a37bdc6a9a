"""Engines run tasks: in processes of this machine, or on the workers of a cluster.

An engine is one file with a class that implements `Engine`, and a branch in `engine`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from .engine import Engine, EngineError, Work

__all__ = ["Engine", "EngineError", "Work", "engine"]


def engine(name: str, workers: int | None) -> AbstractContextManager[Engine]:
    """Make the engine that `--engine` names: `local`, or `dask://host:port`. Raises EngineError."""
    if name == "local":
        from .local import Local

        return Local(workers)
    if name.startswith("dask://"):
        from .dask import Dask

        return Dask(name.removeprefix("dask://"))
    raise EngineError(f"unknown engine {name}: local or dask://HOST:PORT", name)
