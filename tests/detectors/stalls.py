"""What the tests of stalls have in common: one detector's answer, tables changed by hand, evidence against packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from support import rows

from grpcdiag.analyzer.model.budget import CAUSES
from grpcdiag.analyzer.model.finding import Finding, Skipped
from grpcdiag.analyzer.tables import DIRECTIONS, Packets, Tables
from grpcdiag.fixtures.synthetic.scene import Scene

Answers = Iterable[Finding | Skipped]


def found(answers: Answers) -> Finding | None:
    """The finding among a detector's answers."""
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    assert len(findings) <= 1
    return findings[0] if findings else None


def firing(answers: Answers) -> Finding:
    """The finding, which must be there."""
    finding = found(answers)
    assert finding is not None
    return finding


def with_waits(tables: Tables, **columns: Any) -> Tables:
    """The tables with other columns of waits."""
    return replace(tables, waits=replace(tables.waits, **columns))


def relabelled(tables: Tables, old: str, new: str) -> Tables:
    """The tables as if all waits of one cause had another, budgets included."""
    before, after = CAUSES.index(old), CAUSES.index(new)
    budgets = tables.connection_budgets.copy()
    budgets[:, after] += budgets[:, before]
    budgets[:, before] = 0
    cause = np.where(tables.waits.cause == before, after, tables.waits.cause).astype(np.uint8)
    return replace(with_waits(tables, cause=cause), connection_budgets=budgets)


def written(build: Callable[[], Scene] | Scene, folder: Path) -> str:
    """Path of a scene's capture."""
    scene = build if isinstance(build, Scene) else build()
    path = folder / f"scene.{scene.suffix}"
    path.write_bytes(scene.file())
    return str(path)


def check_evidence(finding: Finding, files: Sequence[str], sender: str, lasts_ns: int) -> None:
    """Stop and resumption are data of the sender with none of its data in between; what released it is the peer's."""
    packets = rows(Packets, files)
    place = {number: row for row, number in enumerate(packets.packet.tolist())}
    assert len(finding.evidence) % 3 == 0
    side = DIRECTIONS.index(sender)
    for stopped, released, resumed in zip(*[iter(finding.evidence)] * 3, strict=True):
        for item in (stopped, released, resumed):
            assert int(packets.time_ns[place[item.packet]]) == item.time_ns
        assert [int(packets.direction[place[item.packet]]) for item in (stopped, released, resumed)] == [
            side,
            1 - side,
            side,
        ]
        assert packets.payload_bytes[place[stopped.packet]]
        assert packets.payload_bytes[place[resumed.packet]]
        between = slice(place[stopped.packet] + 1, place[resumed.packet])
        mine = packets.direction[between] == side
        assert not packets.payload_bytes[between][mine].any()
        assert resumed.time_ns - stopped.time_ns >= lasts_ns
