"""The options of a recording."""

from dataclasses import dataclass
from typing import Literal

from ..files.atomic_file import PRIVATE
from .processes import Detail
from .tcpdump import Rotation

Keys = Literal["off", "beside", "embedded"]


@dataclass(frozen=True)
class Plan:
    """The options of a recording."""

    arguments: tuple[str, ...]
    """The command; without a command the recording lasts until it is interrupted."""
    output: str
    interface: str
    expression: str
    ports: tuple[int, ...] = ()
    targets: tuple[str, ...] = ()
    """IP addresses of the targets; the sidecar has their routes."""
    snaplen: int = 0
    buffer_kib: int = 65_536
    rotate: Rotation | None = None
    user: str | None = None
    namespace: str | None = None
    """Path of the network namespace in which tcpdump runs; None for the present one."""
    mode: int = PRIVATE
    """Mode of all files."""
    patience_s: float = 5.0
    """Longest time for connections to close after the command."""
    sample_every_s: float = 0.1
    """Time between two samples of sockets; 0 for none."""
    processes: Detail = "auto"
    """What is recorded of threads: of the command's, and of the processes `pids`."""
    pids: tuple[int, ...] = ()
    """Processes that run already and are recorded, too."""
    keys: Keys = "off"
    """Whether the command writes its TLS secrets: beside the capture, or embedded in it."""
    also: tuple[str, ...] = ()
    """Other hosts that record the same, over ssh."""
    version: str = ""
