"""Header blocks that may be larger than their receiver accepts."""

import numpy as np

from ..model.finding import Remedy
from ..model.text import count
from ..software import intents, settings
from ..summary import figures
from ..tables import Tables, error_name
from . import failures as common
from .hosts import host
from .software_at import recognise_end

_CODES = ("PROTOCOL_ERROR", "INTERNAL_ERROR", "FRAME_SIZE_ERROR", "COMPRESSION_ERROR", "ENHANCE_YOUR_CALM")
"""What libraries send in a GOAWAY for metadata above their limit: nghttp2 COMPRESSION_ERROR, python-hyper's h2
ENHANCE_YOUR_CALM, Netty and Jetty PROTOCOL_ERROR."""

_FRAME = 16_384
"""The least frame that each side must accept (RFC 9113 section 4.2)."""


def describe_large(tables: Tables, goaway: int) -> str:
    """Say how large a header block was on which its receiver may act by a GOAWAY; nothing for small ones.

    A header block that does not fit into a frame of 16,384 bytes is large. Some servers allow larger frames.
    """
    goaways, connections, directions = tables.goaways, tables.connections, tables.directions
    connection, receiver = int(goaways.connection[goaway]), int(goaways.direction[goaway])
    code = error_name(int(goaways.code[goaway]))
    if code not in _CODES or not connections.complete[connection]:
        return ""
    row = 2 * connection + 1 - receiver
    frames, octets = int(directions.header_frames[row]), int(directions.header_block_bytes[row])
    requests = max(int(connections.rpcs[connection]) + int(connections.other_streams[connection]), 1)
    # clients send one block for a request, and servers at most two: what exceeds that are CONTINUATION frames
    blocks = requests if receiver else 2 * requests
    fits = frames <= blocks and octets <= _FRAME * blocks
    if fits or _is_any_accepted(tables, connection, receiver):
        return ""
    one, other = host(tables, connection, 1 - receiver), host(tables, connection, receiver)
    metadata = f"{octets:,} bytes of metadata in {count(frames, 'frame')} for {count(requests, 'request')}"
    return f"{one} had sent {metadata}: probably more than {other} accepts."


def _is_any_accepted(tables: Tables, connection: int, receiver: int) -> bool:
    """Check whether a receiver accepted header blocks: the ones with CONTINUATION frames may be among them."""
    rpcs = tables.rpcs
    answered = np.flatnonzero((rpcs.connection == connection) & (rpcs.status_source == common.TRAILERS))
    return len(answered) > 0 if receiver else not np.isin(answered, figures.find_discarded(tables)).all()


def list_remedies(tables: Tables, goaway: int) -> tuple[Remedy, ...]:
    """List the limits of the software that sent a GOAWAY: those of a server by its name."""
    connection, receiver = int(tables.goaways.connection[goaway]), int(tables.goaways.direction[goaway])
    software = recognise_end(tables, connection, receiver)
    if receiver:
        return settings.list_metadata(software)
    fields = settings.list_own(intents.SHORTER_FIELDS, software)
    return tuple(Remedy("application", one.knob, one.note) for one in fields) or (_OF_CLIENT,)


_OF_CLIENT = Remedy("application", "the client's limit on metadata (header list size)", "or less metadata in responses")
