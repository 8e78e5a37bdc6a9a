"""`grpcdiag explain`: explain a finding."""

from __future__ import annotations

from typing import Annotated

import typer

from .support.common import fail, write
from .support.completion import finding_ids


def command(
    finding: Annotated[
        str,
        typer.Argument(
            metavar="FINDING-ID", help="Id of a finding, such as slow-start-after-idle.", autocompletion=finding_ids
        ),
    ],
) -> None:
    """Explain a finding: how it is decided, what would refute it, settings that change it, references."""
    from ..analyzer.detectors import DETECTORS, by_id

    detector = by_id(finding)
    if detector is None:
        fail(f"no finding has the id {finding!r}; known: {', '.join(d.id for d in DETECTORS)}", 2)
    write(f"{detector.id}\n\n{detector.page.strip()}\n", None)
