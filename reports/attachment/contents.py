"""The data from which an attachment is written."""

from msgspec import Struct

from ...analyzer.model.analysis import Analysis
from ...analyzer.views.issue_evidence import IssueEvidence
from .forms import Form


class Recorded(Struct, frozen=True):
    """What the sidecar says, as far as it may be published."""

    side: str
    """The host that recorded: `client`, `server`, or `both` if client and server ran on it."""
    kernel: str
    """Name and version of the kernel, and the machine's architecture."""
    command: str
    """The command line, masked or complete; empty without a command."""
    masked: bool
    """Whether words of the command line are hidden."""
    exit_code: int | None
    """Exit code of the command."""


class Contents(Struct, frozen=True, eq=False):
    """The contents of an attachment; analysis and evidence are of the scrubbed capture."""

    analysis: Analysis
    evidence: IssueEvidence
    form: Form
    version: str
    """Version of grpcdiag."""
    files: tuple[tuple[str, str], ...]
    """Name and description of the other files of the attachment."""
    capture: str = "capture.pcap"
    """Name of the scrubbed capture, even if it is left out."""
    scrubbed: tuple[str, ...] = ()
    """Notes on what the scrubbed capture lacks."""
    recorded: Recorded | None = None
    without: frozenset[str] = frozenset()
    """Parts that the user leaves out."""
