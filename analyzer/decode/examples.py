"""The RPCs that serve as examples, out of tables in which more have rows: findings see the same ones in both."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from .. import _core
from ..tables import BEGUN_BEFORE, COMPLETE, Ints, Mask, Rpcs, Tables
from ..tables.grouping import group_rows, take_rows
from .disk_columns import gathered

EXAMPLE, LONG = 64, 128
"""Bits of `Rpcs.flags` of a run that marks examples (calls.rs): the RPC has a row whatever its end; it was among the
longest of its method when it ended, or where not all have rows, of all, or in the sample."""
_OF_EARLY_ROWS = ("trace_high", "trace_low", "span_id", "request_id")
"""Columns without values in rows that are made later than their RPCs begin."""
_OF_ALL_ROWS = ("request_messages", "response_messages", "request_bytes", "response_bytes")
"""Columns without rows unless all RPCs have rows."""


def divide_examples(tables: Tables) -> tuple[Tables, Tables]:
    """Take the examples out of tables of a run that marks them; return these, and the tables without the marks."""
    flags, marks = tables.rpcs.flags, np.uint8(EXAMPLE | LONG)
    rows = _find_examples(tables.rpcs)
    of_all = {name: getattr(tables.rpcs, name)[:0] for name in _OF_ALL_ROWS}
    names = [name for name in Rpcs.__struct_fields__ if name not in of_all]
    some = {name: gathered(getattr(tables.rpcs, name), rows) for name in names}
    flags[:] &= ~marks
    some |= {name: np.where(_mark_early(some), some[name], 0) for name in _OF_EARLY_ROWS}
    some["flags"] &= ~marks
    order = np.lexsort((some["stream"], some["connection"], some["first_packet"]))
    rpcs = Rpcs(**{name: column[order] for name, column in some.items()}, **of_all)
    places = np.zeros(len(flags), dtype=np.uint32)
    places[rows[order]] = np.arange(len(rows))
    rpc = places[tables.failures.rpc]
    ended = np.lexsort((rpc, rpcs.last_packet[rpc]))
    examples = replace(
        tables,
        rpcs=rpcs,
        deadlines=gathered(tables.deadlines, rows)[order],
        rpc_budgets=tables.rpc_budgets[:0],
        failures=take_rows(replace(tables.failures, rpc=rpc), ended),
        failure_budgets=tables.failure_budgets[ended],
    )
    return examples, tables


def _find_examples(rpcs: Rpcs) -> Ints:
    kept = (rpcs.status != _core.STATUSES.index("OK")) & (rpcs.flags & COMPLETE != 0)
    kept |= rpcs.flags & EXAMPLE != 0
    # where not all have rows, others have one for being among the longest of all or in a sample
    long = np.flatnonzero((rpcs.flags & (LONG | COMPLETE | BEGUN_BEFORE)) == LONG | COMPLETE)
    stream, first, duration, method = (
        gathered(column, long) for column in (rpcs.stream, rpcs.first_packet, rpcs.duration_ns, rpcs.method)
    )
    order = np.lexsort((stream, first, -duration))
    for places in group_rows(method[order]).values():
        kept[long[order[places[: _core.SLOWEST_RPCS]]]] = True
    return np.flatnonzero(kept)


def _mark_early(examples: Mapping[str, npt.NDArray[Any]]) -> Mask:
    """Mark the rows that are made when their RPCs begin: the first ones of a connection, and retries."""
    is_example = examples["flags"] & EXAMPLE != 0
    early: Mask = np.zeros(len(is_example), dtype=bool)
    is_retry = is_example & (examples["previous_attempts"] > 0)
    for some, most in ((is_example, _core.FIRST_RPCS), (is_retry, _core.RETRIES)):
        rows = np.flatnonzero(some)
        rows = rows[np.argsort(examples["connection"][rows], kind="stable")]
        connection = examples["connection"][rows]
        early[rows[np.arange(len(rows)) - np.searchsorted(connection, connection) < most]] = True
    return early
