"""Describe HTTP/2 requests that are no RPCs."""

from ...analyzer.model.analysis import Analysis, OtherRequest
from ...analyzer.model.text import count, duration

MOST = 5
"""Pairs of path and HTTP status shown; the rest are counted."""


def describe_total(analysis: Analysis) -> str:
    """Say how many requests there were: `2 HTTP/2 requests are no RPCs`."""
    number = analysis.totals.other_streams
    return f"{count(number, 'HTTP/2 request')} {'is no RPC' if number == 1 else 'are no RPCs'}"


def name_path(request: OtherRequest) -> str:
    """Name the path, which is not escaped here."""
    return request.path or "(path not in the capture)"


def describe_requests(request: OtherRequest) -> str:
    """Describe the requests of one path and status: `HTTP status 200, 12 requests, longest 1.5 ms, first packet 7`."""
    return ", ".join(
        (
            "no response" if request.http_status is None else f"HTTP status {request.http_status}",
            count(request.requests, "request"),
            "no end seen" if request.longest_ns is None else f"longest {duration(request.longest_ns)}",
            f"first packet {request.first_packet:,}",
        )
    )
