"""Show what captures of both ends say together."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyzer.model.analysis import Apart
from ...analyzer.model.ends import ClockFacts, Ends, Way
from ...analyzer.model.text import count, duration, list_first, safe
from .drawing import NARROW

MOST_LOST = 8
"""Lost packets named; the rest are in the JSON report."""


def parts(ends: Ends, width: int) -> list[RenderableType]:
    """List the parts of the section: clocks, one-way delays and losses."""
    head = Text("both ends", style="bold")
    head.append(f"  {count(ends.matched_packets, 'packet')} in both captures", style="not bold")
    files = f"client's capture: {safe(list_first(ends.client.files, 1))} (the rest of this report is about it); "
    files += f"server's capture: {safe(list_first(ends.server.files, 1))}"
    shown: list[RenderableType] = [Text(files), Text(clock(ends.clock)), _show_delays(ends, width)]
    for name, way in (("client", ends.up), ("server", ends.down)):
        shown += [Text(line) for line in losses(name, way)]
    shown += [Text(line, style="dim") for line in left_out(ends)]
    return [head, *(Padding(part, (0, 0, 0, 2)) for part in shown)]


def apart(apart: Apart) -> list[RenderableType]:
    """Say that the captures are analysed one by one, and why."""
    return [Text(f"These captures cannot be combined and are analysed one by one: {safe(apart.reason)}.")]


def clock(clock: ClockFacts) -> str:
    """Describe the offset and the drift between the two clocks."""
    if clock.source == "same_host":
        return "server's clock is the client's, because one host recorded both captures"
    text = _describe_offset(clock)
    if clock.drift_ppb is None:
        bound = max(abs(clock.drift_low_ppb), abs(clock.drift_high_ppb))
        text += f"no drift visible (below {_parts_per_million(bound)[1:]} ppm)"
    else:
        low, drift, high = map(_parts_per_million, (clock.drift_low_ppb, clock.drift_ppb, clock.drift_high_ppb))
        text += f"drift {drift} ppm ({low} to {high})"
    return text + _describe_hosts(clock)


def _parts_per_million(ppb: float) -> str:
    """Format parts per billion as parts per million, without an exponent: `+2,010`, `-0.35`."""
    return f"{ppb / 1e3:+,.0f}" if abs(ppb) >= 1e5 else f"{ppb / 1e3:+.3g}"


def _describe_offset(clock: ClockFacts) -> str:
    bound = duration(clock.uncertainty_ns)
    if clock.source == "synchronised":
        text = "server's clock and the client's are taken as equal (--clock synchronised); as far as packets show, "
        return f"{text}they may differ by up to {bound}; "
    ahead = "ahead of" if clock.offset_ns >= 0 else "behind"
    text = f"server's clock is {duration(abs(clock.offset_ns))} {ahead} the client's if the fastest packets took "
    return f"{text}equally long both ways; the error is at most {bound} in any case; "


def _describe_hosts(clock: ClockFacts) -> str:
    """Say what the hosts knew of their clocks, if that is better than what packets show."""
    if clock.hosts_error_ns is None or clock.hosts_error_ns >= clock.uncertainty_ns:
        return ""
    text = f"; by chrony or the kernels, the clocks differ by at most {duration(clock.hosts_error_ns)}"
    return text if clock.source == "synchronised" else f"{text}: --clock synchronised uses that"


def name_delay(ends: Ends) -> str:
    """Name the one-way delay, and say whether it depends on an assumption."""
    return "one-way (if symmetric)" if ends.symmetry_assumed else "one-way delay"


def _show_delays(ends: Ends, width: int) -> RenderableType:
    if width < NARROW:
        ways = (("to the server", ends.up), ("to the client", ends.down))
        return Group(*(_show_delay(f"{name_delay(ends)} {name}", way) for name, way in ways))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for _ in range(6):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(name_delay(ends), "packets", "lost", "min", "p50", "p99", "max", style="dim")
    for name, way in (("to the server", ends.up), ("to the client", ends.down)):
        delay = way.delay_ns
        times = (delay.min, delay.p50, delay.p99, delay.max)
        lost = f"{way.lost_packets:,}"
        table.add_row(name, f"{way.packets:,}", lost, *(duration(time) for time in times))
    return table


def _show_delay(name: str, way: Way) -> Text:
    delay = way.delay_ns
    times = f"min {duration(delay.min)}, p50 {duration(delay.p50)}, p99 {duration(delay.p99)}"
    sent = f"{count(way.packets, 'packet')}, {way.lost_packets:,} lost"
    return Text(f"{name}: {sent}; {times}, max {duration(delay.max)}")


def losses(sender: str, way: Way) -> list[str]:
    """List the packets of a sender that were lost, and those that it retransmitted."""
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
        needed = "all of them needed" if not needless else f"{needless:,} of them needlessly: the bytes arrived"
        lines.append(f"the {sender} retransmitted {count(way.retransmissions, 'packet')}, {needed}")
    return lines


def left_out(ends: Ends) -> list[str]:
    """List what is not in both captures."""
    lines = []
    for receiver, sender, way in (("server", "client", ends.up), ("client", "server", ends.down)):
        if way.not_recorded_packets:
            missing = count(way.not_recorded_packets, "packet")
            text = f"the {receiver}'s capture lacks {missing} of the {sender} that arrived (they were acknowledged)"
            lines.append(text)
        if way.not_seen_sent_packets:
            lines.append(f"the {sender}'s capture lacks {count(way.not_seen_sent_packets, 'packet')} that it sent")
    for name, number in (("client", ends.client.other_connections), ("server", ends.server.other_connections)):
        if number:
            lines.append(f"{count(number, 'connection')} only in the {name}'s capture")
    rpcs = sum(method.rpcs for method in ends.methods)
    divided = sum(method.divided_rpcs for method in ends.methods)
    if divided < rpcs:
        lines.append(f"the network time of {divided:,} of {count(rpcs, 'RPC')} is divided by direction")
    return lines
