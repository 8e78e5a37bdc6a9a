"""Reads a live capture up to exact times of its packets, so that its pieces do not depend on the host's clock."""

from grpcdiag.analyzer.live import LiveCapture


def read_until(live: LiveCapture, time_ns: int) -> None:
    """Read the packets before a time of the capture, and wait until a later one comes, or the stream's end."""
    came = False
    while not came:
        came, goes_on = live._core.wait(0.1, time_ns)
        live.is_over = not goes_on
