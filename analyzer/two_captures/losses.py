"""Find packets that one end sent and the other end's capture lacks, and their retransmissions."""

import numpy as np
from msgspec import Struct

from ..tables import Ints, Mask
from .matching import Crossing, places
from .recorded import RETRANSMISSION, Trace

_LONGEST = 65_535
"""Largest IP packet, bytes."""
_MOST_COPIES = 1_000
"""Packets compared with one retransmission."""
_ACK = 16


class Losses(Struct, frozen=True, eq=False):
    """Packets of one direction that did not arrive; rows of the sender's trace unless stated otherwise."""

    lost: Ints
    """Lost between the capture points."""
    not_recorded: Ints
    """Data that the receiver acknowledged but whose bytes its capture lacks."""
    unsent: Ints
    """Rows of the receiver's trace: packets that the sender's capture lacks."""
    retransmissions: Ints
    """Retransmitted packets."""
    needless: Mask
    """Whether the last byte of each of these arrived with a packet that was sent earlier."""


def losses(
    crossing: Crossing, replies: Trace, recording: tuple[int, int], sending: tuple[int, int], late: Mask
) -> Losses:
    """Find packets that did not arrive while the receiver's capture ran.

    `replies` are the receiver's own packets in its capture. `recording` and `sending` are the times of the first and
    last packet of the receiver's and the sender's capture, in nanoseconds of the common clock. `late` marks connections
    whose handshake is not in both captures.
    """
    delay = crossing.delay[crossing.origin >= 0]
    fast, slow = (int(np.quantile(delay, 0.0)), int(np.quantile(delay, 0.99))) if len(delay) else (0, 0)
    sent, received = crossing.sent, crossing.received
    seen = (crossing.sent_at + fast >= recording[0]) & (crossing.sent_at + slow <= recording[1])
    seen &= _met(sent, crossing.sent_at, crossing.arrived, late)
    missing = np.flatnonzero(~crossing.arrived & seen)
    gap = (sent.length[missing] > 0) & ~_overlaps(sent, received, missing) & _acknowledged(sent, replies, missing)
    known = (crossing.received_at - slow >= sending[0]) & (crossing.received_at - fast <= sending[1])
    known &= _met(received, crossing.received_at, crossing.origin >= 0, late)
    again = np.flatnonzero(sent.note == RETRANSMISSION)
    return Losses(
        lost=missing[~gap],
        not_recorded=missing[gap],
        unsent=np.flatnonzero((crossing.origin < 0) & known),
        retransmissions=again,
        needless=_needless(crossing, again),
    )


def _met(trace: Trace, times: Ints, found: Mask, late: Mask) -> Mask:
    """Mark packets of connections that both captures hold; of late ones, those from the first common packet on."""
    begin = np.where(late, np.iinfo(np.int64).max, np.iinfo(np.int64).min)
    np.minimum.at(begin, trace.connection[found], times[found])
    return times >= np.where(late, begin, np.iinfo(np.int64).min)[trace.connection]


def _overlaps(sent: Trace, received: Trace, rows: Ints) -> Mask:
    """Mark sent packets of which any byte is in a received packet."""
    data = received.length > 0
    begin = places(received)[data]
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate((begin + received.length[data])[order])
    first = places(sent)[rows]
    at = np.searchsorted(begin, first + sent.length[rows], side="left") - 1
    return (at >= 0) & (end[np.maximum(at, 0)] > first) if len(end) else np.zeros(len(rows), dtype=bool)


def _acknowledged(sent: Trace, replies: Trace, rows: Ints) -> Mask:
    """Mark sent packets that the receiver acknowledged."""
    flow, acks = sent.connection * 2 + sent.direction, (replies.flags & _ACK) > 0
    of = replies.connection * 2 + 1 - replies.direction
    highest = np.zeros(int(max(flow.max(initial=0), of.max(initial=0))) + 1, dtype=np.int64)
    np.maximum.at(highest, of[acks], replies.ack[acks])
    return np.asarray(highest[flow[rows]] >= (sent.seq + sent.length)[rows])


def _needless(crossing: Crossing, again: Ints) -> Mask:
    """Mark retransmissions whose last byte arrived with a packet that was sent earlier."""
    sent, received = crossing.sent, crossing.received
    rows = np.flatnonzero((received.length > 0) & (crossing.origin >= 0))
    begin = places(received)[rows]
    order = np.argsort(begin, kind="stable")
    rows, begin = rows[order], begin[order]
    end, left_at = begin + received.length[rows], crossing.sent_at[crossing.origin[rows]]
    last = (places(sent) + sent.length)[again] - 1
    low = np.searchsorted(begin, last - _LONGEST)
    high = np.searchsorted(begin, last, side="right")
    needless = np.zeros(len(again), dtype=bool)
    for place, (start, stop) in enumerate(zip(np.maximum(low, high - _MOST_COPIES), high, strict=True)):
        copies = slice(int(start), int(stop))
        earlier = left_at[copies] < crossing.sent_at[again[place]]
        needless[place] = bool((earlier & (end[copies] > last[place])).any())
    return needless
