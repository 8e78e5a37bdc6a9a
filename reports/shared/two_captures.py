"""What two captures say together, for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Apart, ClockFacts, Ends, Way
from ...analyzer.model.text import count, duration, safe
from .drawing import NARROW

MOST_LOST = 8
"""Lost packets named; the rest are in the JSON report."""


def parts(ends: Ends, width: int) -> list[RenderableType]:
    """Clock, ways and losses."""
    head = Text("both ends", style="bold")
    head.append(f"  {count(ends.matched_packets, 'packet')} in both captures", style="not bold")
    files = f"client's capture {_named(ends.client.files)}, which all else here is about; server's "
    told: list[RenderableType] = [Text(files + _named(ends.server.files)), Text(clock(ends.clock)), _ways(ends, width)]
    for name, way in (("client", ends.up), ("server", ends.down)):
        told += [Text(line) for line in losses(name, way)]
    told += [Text(line, style="dim") for line in left_out(ends)]
    return [head, *(Padding(part, (0, 0, 0, 2)) for part in told)]


def apart(apart: Apart) -> list[RenderableType]:
    """That captures are analysed one by one, and why."""
    return [Text(f"These captures cannot be put together, and are analysed one by one: {safe(apart.reason)}.")]


def _named(files: tuple[str, ...]) -> str:
    return safe(files[0]) + (f" and {len(files) - 1} more" if len(files) > 1 else "")


def clock(clock: ClockFacts) -> str:
    """How the two clocks stand."""
    ahead = "ahead of" if clock.offset_ns >= 0 else "behind"
    text = f"server's clock {duration(abs(clock.offset_ns))} {ahead} the client's if the fastest packets took as long "
    text += f"both ways, at most {duration(clock.uncertainty_ns)} more or less in any case; "
    if clock.drift_ppb is None:
        bound = max(abs(clock.drift_low_ppb), abs(clock.drift_high_ppb))
        return text + f"no drift to be seen (below {bound / 1e3:.3g} ppm)"
    text += f"it drifts by {clock.drift_ppb / 1e3:+.3g} ppm "
    return text + f"({clock.drift_low_ppb / 1e3:+.3g} to {clock.drift_high_ppb / 1e3:+.3g})"


def _ways(ends: Ends, width: int) -> RenderableType:
    if width < NARROW:
        return Group(*(_way(name, way) for name, way in (("up", ends.up), ("down", ends.down))))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for _ in range(6):
        table.add_column(justify="right", no_wrap=True)
    table.add_row("one way", "packets", "lost", "fastest", "p50", "p99", "slowest", style="dim")
    for name, way in (("up", ends.up), ("down", ends.down)):
        delay = way.delay_ns
        times = (delay.min, delay.p50, delay.p99, delay.max)
        lost = f"{way.lost_packets:,}"
        table.add_row(name, f"{way.packets:,}", lost, *(duration(time) for time in times))
    return table


def _way(name: str, way: Way) -> Text:
    delay = way.delay_ns
    times = f"fastest {duration(delay.min)}, p50 {duration(delay.p50)}, p99 {duration(delay.p99)}"
    sent = f"{count(way.packets, 'packet')}, {way.lost_packets:,} lost"
    return Text(f"one way {name}: {sent}; {times}, slowest {duration(delay.max)}")


def losses(sender: str, way: Way) -> list[str]:
    """What was lost on a way, and what was sent again."""
    lines = []
    if way.lost_packets:
        shown = ", ".join(f"#{lost.packet}" for lost in way.lost[:MOST_LOST])
        more = f" and {way.lost_packets - MOST_LOST:,} more" if way.lost_packets > MOST_LOST else ""
        share = way.lost_packets / way.packets
        lines.append(
            f"{count(way.lost_packets, 'packet')} of the {sender} ({share:.1%}) lost in the network: {shown}{more} in "
            f"the {sender}'s capture"
        )
    if way.retransmissions:
        needless = way.needless_retransmissions
        said = "all of them needed" if not needless else f"{needless:,} of them needlessly: the bytes arrived"
        lines.append(f"the {sender} sent {count(way.retransmissions, 'packet')} again, {said}")
    return lines


def left_out(ends: Ends) -> list[str]:
    """What is not in both captures."""
    lines = []
    for mine, other, way in (("server", "client", ends.up), ("client", "server", ends.down)):
        if way.not_recorded_packets:
            missing = count(way.not_recorded_packets, "packet")
            lines.append(f"the {mine}'s capture lacks {missing} of the {other} that arrived: they were acknowledged")
        if way.not_seen_sent_packets:
            lines.append(f"the {other}'s capture lacks {count(way.not_seen_sent_packets, 'packet')} that it sent")
    for name, number in (("client", ends.client.other_connections), ("server", ends.server.other_connections)):
        if number:
            lines.append(f"{count(number, 'connection')} in the {name}'s capture alone")
    rpcs = sum(method.rpcs for method in ends.methods)
    divided = sum(method.divided_rpcs for method in ends.methods)
    if divided < rpcs:
        lines.append(f"the time of {divided:,} of {count(rpcs, 'RPC')} is divided between both ends")
    return lines
