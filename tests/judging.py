"""What the tests of several detectors need: one finding of a capture, and its evidence looked up in the packets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from support import synthetic

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.finding import Finding, Skipped
from grpcdiag.analyzer.tables import Tables
from grpcdiag.fixtures.synthetic.conversation import Conversation
from grpcdiag.fixtures.synthetic.files import write_pcap
from grpcdiag.fixtures.synthetic.wire import Close, Link


def tables_of_scene(name: str) -> Tables:
    """A synthetic capture, decoded."""
    return decode([synthetic(name).file])


def played(conv: Conversation, folder: Path, close: Close = "client", **how: Any) -> Tables:
    """A conversation as a capture, decoded."""
    path = folder / "played.pcap"
    path.write_bytes(write_pcap(Link(rtt_ns=conv.rtt_ns, close=close).carry(conv)))
    return decode([str(path)], **how)


def told(module: Any, tables: Tables, **limits: Any) -> Finding | None:
    """The detector's finding; None when it says nothing. It must not skip."""
    answers = list(module.detect(tables, module.Limits(**limits)))
    assert not [answer for answer in answers if isinstance(answer, Skipped)]
    assert len(answers) <= 1
    return answers[0] if answers else None


def must(module: Any, tables: Tables, **limits: Any) -> Finding:
    """The detector's finding, which there must be."""
    found = told(module, tables, **limits)
    assert found is not None
    return found


def skipped(module: Any, tables: Tables, **limits: Any) -> str:
    """Why the detector cannot tell; it must not tell anything."""
    (answer,) = module.detect(tables, module.Limits(**limits))
    assert isinstance(answer, Skipped)
    return answer.reason


def changed(tables: Tables, table: str, **columns: Any) -> Tables:
    """The tables with some columns replaced."""
    old = getattr(tables, table)
    new = {name: np.asarray(value, dtype=getattr(old, name).dtype) for name, value in columns.items()}
    return replace(tables, **{table: replace(old, **new)})


def repeated(tables: Tables, table: str, row: int, times: int) -> Tables:
    """The tables with one row of a table in place of all its rows, so many times."""
    old = getattr(tables, table)
    return replace(
        tables, **{table: type(old)(*[np.repeat(getattr(old, f)[[row]], times) for f in old.__struct_fields__])}
    )
