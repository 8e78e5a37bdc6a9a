from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "BEGINNINGS",
    "CAUSES",
    "CLASSES_PER_DECADE",
    "FIRST_RPCS",
    "FRAME_TYPES",
    "IMPLEMENTATIONS",
    "LATE_NS",
    "PACKET_NOTES",
    "PATH_PARTS",
    "PING_PURPOSES",
    "REPEATED_WITHIN_NS",
    "RETRIES",
    "ROLES_FROM",
    "RPC_PROTOCOLS",
    "SLOWEST_RPCS",
    "STATUSES",
    "STATUS_SOURCES",
    "THREAD_STATES",
    "TLS_ALERT_LENGTH",
    "VANTAGES",
    "WITHHELD",
    "Annotating",
    "CaptureError",
    "EmptyCaptureError",
    "Live",
    "MemoryLimitError",
    "PacketOrder",
    "ProcessRecord",
    "RowWriter",
    "Run",
    "Scrubbing",
    "SpillError",
    "TracePages",
    "__build__",
    "__features__",
    "__version__",
    "earliest_deadlines",
    "measure_records",
]

_Column = npt.NDArray[np.generic]

BEGINNINGS: Final[list[str]]
CAUSES: Final[list[str]]
CLASSES_PER_DECADE: Final[int]
PATH_PARTS: Final[list[str]]
THREAD_STATES: Final[list[str]]
FRAME_TYPES: Final[list[str]]
STATUSES: Final[list[str]]
STATUS_SOURCES: Final[list[str]]
TLS_ALERT_LENGTH: Final[int]
WITHHELD: Final[int]
REPEATED_WITHIN_NS: Final[int]
LATE_NS: Final[int]
FIRST_RPCS: Final[int]
RETRIES: Final[int]
SLOWEST_RPCS: Final[int]
RPC_PROTOCOLS: Final[list[str]]
VANTAGES: Final[list[str]]
ROLES_FROM: Final[list[str]]
PING_PURPOSES: Final[list[str]]
PACKET_NOTES: Final[list[str]]
IMPLEMENTATIONS: Final[list[str]]
__build__: Final[tuple[str | None, str | None, str]]
"""Commit and date, if the build named them (`make wheels`), and Cargo's profile: release or quick."""
__features__: Final[list[str]]
"""What this build has of what can be left out: parquet."""
__version__: Final[str]

class CaptureError(Exception): ...
class EmptyCaptureError(CaptureError): ...
class MemoryLimitError(Exception): ...
class SpillError(Exception): ...

@final
class Run:
    def __new__(
        cls,
        paths: list[str],
        *,
        frames: bool = False,
        messages: bool = False,
        packets: bool = False,
        rpc_rows: bool = False,
        marks_examples: bool = False,
        slowest: int = 0,
        sampled: int = 0,
        distributions: bool = False,
        acts: bool = False,
        errors: bool = False,
        ports: list[int] = ...,
        labels: list[tuple[int, str]] = ...,
        keylog: bytes | None = None,
        as_scrubbed: bool = False,
        file_times: bool = False,
        unlisted_packets: bool = False,
        only: list[tuple[int, tuple[int, int], tuple[int, int], int | None]] | None = None,
        lists_packets: bool = False,
        most_frames: int = ...,
        threads: int = 1,
        spill: int = 0,
        memory: int | None = None,
        resumes: bool = False,
        saved: bytes | None = None,
        order: PacketOrder | None = None,
    ) -> Run: ...
    def step(self, packets: int) -> bool: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def bytes_total(self) -> int | None: ...
    @property
    def first_time_ns(self) -> int | None: ...
    def take(self, table: str) -> dict[str, _Column]: ...
    def take_rpcs(self, least: int, most: int) -> list[dict[str, Any]]: ...
    def finish(self) -> dict[str, Any]: ...
    def finish_file(self) -> tuple[dict[str, Any], dict[str, Any], bytes | None]: ...

@final
class Live:
    def __new__(
        cls,
        path: str,
        *,
        history: int = 1,
        errors: bool = False,
        ports: list[int] = ...,
        keylog: bytes | None = None,
        key_file: str | None = None,
    ) -> Live: ...
    def wait(self, seconds: float, until: int | None = None) -> tuple[bool, bool]: ...
    def cut(self, end: int | None = None) -> None: ...
    def window(self, pieces: int) -> dict[str, Any] | None: ...
    def kept(self) -> tuple[int, int, int, int, int]: ...
    def stop(self) -> None: ...

@final
class PacketOrder: ...

@final
class TracePages:
    def __new__(cls, formats: list[str], key: bytes) -> TracePages: ...
    def compress(self, pages: list[bytearray]) -> bytes: ...

@final
class ProcessRecord:
    def __new__(
        cls, formats: list[str], tasks: list[tuple[int, int, str]], blocks: list[tuple[int, bytes]]
    ) -> ProcessRecord: ...
    def counts(self) -> tuple[int, bool, bool, int]: ...
    def sockets(self) -> list[tuple[int, bytes, int, bytes, int, int]]: ...
    def tasks(self) -> list[tuple[int, int, int, str]]: ...
    def divide(
        self,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        sockets: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.uint64],
        arrivals: npt.NDArray[np.int64],
        throttled: list[tuple[int, int]],
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]: ...
    def follow(
        self,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        sockets: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.uint64],
        arrivals: npt.NDArray[np.int64],
        throttled: list[tuple[int, int]],
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.uint8],
        npt.NDArray[np.int32],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
    ]: ...
    def spans(
        self, throttled: list[tuple[int, int]], most: int
    ) -> tuple[int, npt.NDArray[np.int32], npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...

@final
class Scrubbing:
    def __new__(
        cls, paths: list[str], *, key: bytes, hide_methods: bool = False, ports: list[int] = ...
    ) -> Scrubbing: ...
    def step(self, packets: int) -> bytes | None: ...
    @property
    def bytes_read(self) -> int: ...
    def report(self) -> dict[str, Any]: ...

@final
class Annotating:
    def __new__(cls, paths: list[str], comments: list[tuple[int, str]]) -> Annotating: ...
    def step(self, packets: int) -> bytes | None: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def counts(self) -> tuple[int, int, int]: ...

@final
class RowWriter:
    def __new__(
        cls, format: str, metadata: list[tuple[str, str]] = ..., fields: dict[str, dict[str, str]] = ...
    ) -> RowWriter: ...
    def write(
        self, columns: list[tuple[str, Any, list[str | None] | None, bool, int | None]]
    ) -> npt.NDArray[np.uint8]: ...
    def finish(self) -> bytes: ...

def earliest_deadlines(timeouts_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]: ...
def measure_records(piece: bytes, is_big_endian: bool, longest: int) -> tuple[int, int, int]: ...
