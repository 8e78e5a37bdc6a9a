"""Packets that are shown as evidence, and how many of them."""

from msgspec import Struct

from ..model.finding import Evidence

EXAMPLES, FEW_EXAMPLES = 3, 2
"""Connections, RPCs or packets shown as evidence of a finding, at most (heuristic: enough to see a pattern)."""


def show_packet(table: Struct, name: str, row: int, what: str) -> Evidence:
    """Show a packet of a row by the name of the column with its number; that of its time is alike: `ack_time_ns`."""
    packet, time = (int(getattr(table, column)[row]) for column in (name, name.replace("packet", "time_ns")))
    return Evidence(packet, time, what)
