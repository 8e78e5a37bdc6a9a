"""How a detector's finding relates to other findings, and what it counts."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

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


PictureName = Literal[
    "batches",
    "connection_window",
    "delayed_acks",
    "flight",
    "handshakes",
    "idle_gaps",
    "latencies",
    "losses",
    "none",
    "packet_rates",
    "queue_delay",
    "receive_window",
    "stream_window",
    "streams",
    "used_up_window",
    "waiting_calls",
]
"""What `analyzer/views/pictures` can draw; `none` is for findings about what has no calls and no packets."""

ProxyFault = Literal["changed_status", "ignored_reset", "failed_attempt"]
"""What a proxy did with calls whose legs ended differently; see `analyzer/hops/faults.py`."""

FIGURES = (
    "control_packets",
    "data_packets",
    "idle_clients",
    "other_statuses",
    "retransmissions",
    "stream_limit",
    "threads",
)
"""What two captures may differ in, other than a cause of RPC time or a status; see `About.explains`."""


class Cost(Struct, frozen=True, eq=False):
    """A metric that says what a finding costs if that is no RPC time."""

    metric: str
    """A number, or a duration if its name ends with `_ns`; 0 is no cost."""
    text: str
    """The metric takes the place of `{}`: `{} failed`."""
    noun: str = "RPC"
    """What it counts."""


class Requirement(Struct, frozen=True, eq=False):
    """A setting of Linux without which a finding cannot occur."""

    sysctl: str
    pattern: str
    """What the packets show nonetheless, as the beginning of a sentence."""


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
    judges_capture: bool = False
    """It judges the capture: the verdict names it after others as severe, and it is no example of a problem."""
    counts_losses: bool = False
    """It counts lost packets: captures of both hosts say how many of them were lost between them."""
    requires: Requirement | None = None
    """Where the recording host has this setting off, the finding is skipped."""
    proxy_faults: tuple[ProxyFault, ...] = ()
    """What a proxy did with calls of which the finding may be about one leg."""
    picture: PictureName = "latencies"
    """The picture that shows it in the HTML report."""
    costs: tuple[Cost, ...] = ()
    """What it costs if that is no RPC time."""
    explains: tuple[str, ...] = ()
    """Causes of RPC time, statuses and `FIGURES` that it explains where two captures differ; the nearest first."""


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
