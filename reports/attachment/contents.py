"""What an attachment is written from."""

from __future__ import annotations

from msgspec import Struct

from ...analyzer.model.analysis import Analysis
from ...analyzer.views.issue_evidence import IssueEvidence
from .forms import Form


class Recorded(Struct, frozen=True):
    """What the file beside the capture tells, as far as it may be shown."""

    side: str
    """Whose host recorded: `client`, `server`, or `both` for one host."""
    kernel: str
    """Name and number of the kernel, and the machine's architecture."""
    command: str
    """The command line, masked or whole; empty when there was none."""
    masked: bool
    """Whether words of it are hidden."""
    exit_code: int | None
    """The command's."""


class Contents(Struct, frozen=True, eq=False):
    """All of it; the analysis and the exhibit are those of the scrubbed capture."""

    analysis: Analysis
    evidence: IssueEvidence
    form: Form
    version: str
    """Of the program."""
    files: tuple[tuple[str, str], ...]
    """The other files of the attachment: name, and what it is."""
    capture: str = "capture.pcap"
    """The scrubbed capture's name, also where it is left out."""
    scrubbed: tuple[str, ...] = ()
    """What could not be kept in the scrubbed capture, in words."""
    recorded: Recorded | None = None
    without: frozenset[str] = frozenset()
    """Parts of the text that are not wanted."""
