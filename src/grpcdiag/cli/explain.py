"""`grpcdiag explain`: explain a finding."""

from typing import Annotated

import typer

from .support.common import fail, suggest, write
from .support.completion import finding_ids


def command(
    finding: Annotated[
        str | None,
        typer.Argument(
            metavar="[FINDING-ID]",
            help="Id of a finding, such as slow-start-after-idle. Default: list all findings.",
            autocompletion=finding_ids,
        ),
    ] = None,
) -> None:
    """Explain a finding: how it is decided, what would refute it, settings that change it, references."""
    from ..analyzer.detectors import DETECTORS
    from ..analyzer.model.detector import find_detector

    if finding is None:
        width = max(len(detector.id) for detector in DETECTORS)
        write("".join(f"{one.id:<{width}}  {one.page.strip().splitlines()[0]}\n" for one in DETECTORS), None)
        return
    detector = find_detector(DETECTORS, finding)
    if detector is None:
        ids = [one.id for one in DETECTORS]
        fail(f"no finding has the id {finding!r}; {suggest(finding, ids, 'grpcdiag explain lists all')}", 2)
    write(f"{detector.id}\n\n{detector.page.strip()}\n", None)
