"""What tests of detectors share: one detector's answer to a capture, and whether its evidence is in the packets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support import rows

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.finding import Finding
from grpcdiag.analyzer.tables import Packets


def found(module: Any, files: Sequence[str], **limits: Any) -> Finding | None:
    """The one finding of a detector, with some limits changed; None when it has none."""
    answers = [a for a in module.detect(decode(list(files)), module.Limits(**limits)) if isinstance(a, Finding)]
    assert len(answers) <= 1
    return answers[0] if answers else None


def severity(module: Any, files: Sequence[str], **limits: Any) -> str | None:
    """Its severity, None without a finding."""
    finding = found(module, files, **limits)
    return finding.severity if finding else None


def the_finding(module: Any, files: Sequence[str], **limits: Any) -> Finding:
    """The finding that must be there."""
    finding = found(module, files, **limits)
    assert finding is not None
    assert finding.id == module.ID
    return finding


def evidence_is_in_the_packets(finding: Finding, files: Sequence[str]) -> None:
    """Each packet that is shown exists, on a connection of the finding, at the time that is told."""
    packets = rows(Packets, files)
    errors = decode(list(files)).icmp_errors
    columns = [
        (packets.packet, packets.connection, packets.time_ns),
        (errors.first_packet, errors.connection, errors.first_time_ns),
        (errors.last_packet, errors.connection, errors.last_time_ns),
    ]
    place = {row[0]: row[1:] for table in columns for row in zip(*(column.tolist() for column in table), strict=True)}
    assert finding.evidence
    for item in finding.evidence:
        connection, time_ns = place[item.packet]
        assert connection in finding.scope.connections
        assert abs(time_ns - item.time_ns) < 1_000_000, item.what
