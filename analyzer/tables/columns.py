"""Types of columns, and the constants that columns refer to."""

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]
Sizes = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.uint16]
Mask = npt.NDArray[np.bool_]

DIRECTIONS = ("client", "server")
"""Names of directions by number."""
NOT_SEEN = 255
"""Status of an RPC whose status is not on the wire."""
NO_AGENT = 0xFFFF_FFFF
"""Stands for software whose name is not in the capture."""
NO_METHOD = 0xFFFF_FFFF
"""Method number of RPCs whose method is not in the capture."""
WINDOW_NOT_KNOWN = np.iinfo(np.int64).min
"""Stands for an unknown HTTP/2 window; real windows may be negative (RFC 9113 section 6.9.2)."""
COMPLETE = 1
"""Bit of `Rpcs.flags`: the end of the RPC was seen."""
METHOD_UNKNOWN = 2
"""Bit of `Rpcs.flags`: the method was not on the wire in this capture."""
BEGUN_BEFORE = 4
"""Bit of `Rpcs.flags`: the RPC began before the capture; its start and duration cover the part that was seen."""
TOUCHES_GAP = 8
"""Bit of `Rpcs.flags`: bytes of the RPC are missing from the capture."""
END_MISSING = 32
"""Bit of `Rpcs.flags`: its end may be among bytes or packets that the capture lacks; it took at least `duration_ns`."""
HEADERS_UNKNOWN = 16
"""Bit of `Rpcs.flags`: fields of the request's headers are unknown; its deadline may be among them."""
PROTOCOLS = ("undecided", "http2", "tls", "other", "http1")
"""Names of `Connections.protocol`; HTTP/1.1 without gRPC-Web or Connect is `other`."""
LAYERS = ("packet", "tcp", "http2", "grpc", "tls")
"""Names of `Problems.layer`."""
PAUSE_NS = 10_000_000
"""Shortest idle time of the client that counts as the application's own pause, nanoseconds."""

ERROR_CODES = (
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
)
"""Names of HTTP/2 error codes (RFC 9113 section 7)."""


def error_name(code: int) -> str:
    """Return the name of an HTTP/2 error code."""
    return ERROR_CODES[code] if code < len(ERROR_CODES) else f"error {code}"
