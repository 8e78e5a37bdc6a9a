"""How a detector's finding relates to other findings, and what it counts."""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from ..tables import Tables
from .analysis import Analysis
from .finding import Finding, Skipped

HEADINGS = (
    "What it finds",
    "How it is decided",
    "When it cannot tell",
    "What would refute it",
    "What to do",
    "References",
)
"""The sections of every detector's docstring, in this order."""


class About(Struct, frozen=True, eq=False):
    """How a detector's finding is treated; every detector's file has one, named `ABOUT`."""

    example: str
    """The capture in fixtures/ whose finding its page shows."""
    figure: Callable[[Analysis], str] = lambda _: "no packets that show it"
    """Writes the figure that contradicts the finding when the detector finds nothing, as Markdown."""
    caused_by: tuple[str, ...] = ()
    """Findings of which this one is part when both are on one connection; the most likely first."""
    counts_own_time: bool = False
    """No other finding counts this time, so the finding keeps it even as part of another."""
    precedence: int = 100
    """Rank among equally severe findings without lost time: the verdict names the lowest."""
    weight: str = ""
    """Metric with the share by which the verdict ranks its findings without lost time: of RPCs, or of RPC time."""
    weighs_time: bool = False
    """`weight` is a share of RPC time, so the finding says where that time passes."""
    whole_connections: bool = False
    """It counts whole connections: it cannot judge only some RPCs of a connection."""
    judges_servers: bool = False
    """It judges servers: of calls through a proxy it reads the legs behind the proxy, where the servers are."""
    without_rpcs: bool = False
    """It judges connections, also those of a capture without RPCs."""
    needs_processes: bool = False
    """It reads a process record, and says nothing without one."""
    side: str = ""
    """`client` or `server`, where its findings are always about that side; else the metric `side` says which."""
    one_direction: bool = False
    """It judges what one side sent: it needs no packet of the other side."""


class Detector(Struct, frozen=True, eq=False):
    """A detector, ready to run."""

    id: str
    """The finding's id, also the name of its file, fixtures, test and docs page."""
    page: str
    """Its explanation, with the headings of `HEADINGS`."""
    detect: Callable[[Tables], Iterator[Finding | Skipped]]
    """Runs it with its limits."""
    about: About
    """How its finding is treated."""
    limits: Struct
    """Its default limits."""


def find_detector(detectors: Iterable[Detector], finding: str) -> Detector | None:
    """Find the detector of a finding id."""
    return next((detector for detector in detectors if detector.id == finding), None)
