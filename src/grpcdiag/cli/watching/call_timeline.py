"""The timeline of one call, from the packets that the ring has."""

from __future__ import annotations

import tempfile

from ...analyzer.decode.decode import decode
from ...analyzer.decode.errors import CaptureError
from ...analyzer.decode.runner import DecodeOptions
from ...analyzer.live.interval import CallFigures
from ...analyzer.views.excerpt import excerpt
from ...capture.errors import RecordingError
from ...reports import timeline
from .flight_recorder import FlightRecorder

BEFORE_NS = 100_000_000
"""Time before a call that is read, too (heuristic: what held up its first packet is there)."""
MOST_LINES = 500
_GONE = "its packets are no longer kept: --keep sets how many are, as 60s,1G"


def draw_call(recorder: FlightRecorder, call: CallFigures, chosen: DecodeOptions, width: int) -> str:
    """Draw the timeline of a call. Raises RecordingError when its packets are gone."""
    begin, end = call.start_ns - BEFORE_NS, call.start_ns + call.duration_ns
    with tempfile.NamedTemporaryFile(prefix="grpcdiag-", suffix=".pcapng") as out:
        try:
            if not recorder.write_between(begin, end, out):
                raise RecordingError(_GONE)
            out.flush()
            tables = decode([out.name], **chosen)
            ends = (call.client, call.server)
            found = [
                row
                for row in range(len(tables.connections.protocol))
                if (tables.client(row), tables.server(row)) in (ends, ends[::-1])
            ]
            if not found:
                raise RecordingError(_GONE)
            part = excerpt([out.name], found[-1], stream=call.stream, **chosen)
        except OSError as error:
            raise RecordingError(error.strerror or str(error)) from None
        except CaptureError as error:
            raise RecordingError(str(error)) from None
    return timeline.render(part, width=width, colour=True, limit=MOST_LINES)
