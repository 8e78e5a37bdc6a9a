"""Say why one capture needs more packets per message than the other."""

from collections.abc import Callable, Iterator

from .difference import MOSTLY, NOTABLE, PARTLY, Difference, Reason, find_new, list_new, order_by, times
from .figures import bunched, packets_of, part, weight
from .run import Run, over


def compare_packets(first: Run, second: Run) -> Iterator[Difference]:
    """Compare packets per message."""
    found = order_by(first, second, lambda run: over(run.packets, run.messages))
    if found is None:
        return
    worse, other, ratio = found
    per = [run.packets / run.messages for run in (worse, other)]
    fact = f"{worse.label} sends {times(ratio)} as many packets per message as {other.label}"
    fact += f" ({per[0]:.2f} against {per[1]:.2f})"
    reasons = tuple(_explain_packets(worse, other, per[0] - per[1]))
    yield Difference("packets_per_message", worse.label, other.label, ratio, fact, reasons)


def _explain_packets(worse: Run, other: Run, excess: float) -> Iterator[Reason]:
    """Name the kinds of packets that account for the excess, the largest first."""
    shares = {
        kind: ((part(worse, kind) or 0.0) - (part(other, kind) or 0.0)) / excess
        for kind in ("data", "control", "other")
    }
    for kind, share in sorted(shares.items(), key=lambda item: -item[1]):
        if share >= PARTLY and (reason := _PARTS[kind](worse, other, share)):
            yield reason


def _explain_data(worse: Run, other: Run, share: float) -> Reason | None:
    """Explain more packets with messages or headers: fewer messages share a packet, or messages are larger."""
    apart, together = bunched(worse), bunched(other)
    if apart is None or together is None:
        return None
    if together >= NOTABLE * apart:
        sharing = f"a packet carries {apart:.1f} of its messages instead of {together:.1f}"
        finding = find_new("data_packets", worse, other)
        spread = _describe_spread(worse, other)
        return Reason(f"{spread}, so {sharing}" if spread else sharing, share, finding)
    size = [over(run.sent("message_bytes"), run.messages) for run in (worse, other)]
    if size[0] and size[1] and size[0] >= NOTABLE * size[1]:
        return Reason(f"its messages are {times(size[0] / size[1])} as large", share)
    cut = [over(run.sent("data_frames"), run.messages) for run in (worse, other)]
    if cut[0] and cut[1] and cut[0] >= NOTABLE * cut[1]:
        frames = f"its messages are split into {cut[0]:.1f} DATA frames instead of {cut[1]:.1f}"
        return Reason(frames, share, find_new("data_packets", worse, other))
    return None


def _describe_spread(worse: Run, other: Run) -> str | None:
    """Say that messages of many streams are sent at more different times; None if they are not."""
    busy = [run.sent("busy_intervals_10ms") for run in (worse, other)]
    if worse.callers < 2 or not busy[0] or not busy[1]:
        return None
    if busy[0] / worse.messages < NOTABLE * busy[1] / other.messages:
        return None
    return (
        f"its {worse.callers:,} {'streams' if worse.streaming else 'callers'} send at more different times "
        f"({busy[0]:,} intervals of 10 ms with messages against {busy[1]:,}, both directions)"
    )


def _explain_control(worse: Run, other: Run, share: float) -> Reason:
    """Explain more packets with only control frames."""
    more, fewer = (_format_part(run, packets_of(run, "control") or 0) for run in (worse, other))
    text = f"{more} packets carry only {_name_frames(worse)} ({other.label}: {fewer})"
    return Reason(text, share, max(list_new("control_packets", worse, other), key=weight, default=None))


def _name_frames(run: Run) -> str:
    """Name the control frames, the most frequent first."""
    names = {
        "PING": run.sent("pings") + run.sent("ping_acks"),
        "WINDOW_UPDATE": run.sent("window_updates"),
        "SETTINGS": run.sent("settings"),
    }
    most = max(names.values())
    frequent = [name for name, number in sorted(names.items(), key=lambda item: -item[1]) if number >= PARTLY * most]
    return " or ".join(frequent)


def _explain_other(worse: Run, other: Run, share: float) -> Reason:
    """Explain more packets without payload, and more retransmissions."""
    again, theirs = over(worse.retransmitted, worse.messages) or 0.0, over(other.retransmitted, other.messages) or 0.0
    rest = (part(worse, "other") or 0.0) - (part(other, "other") or 0.0)
    if again - theirs >= MOSTLY * rest:
        more, fewer = (_format_part(run, run.retransmitted) for run in (worse, other))
        text = f"{more} packets are retransmitted ({other.label}: {fewer})"
        return Reason(text, share, find_new("retransmissions", worse, other))
    more, fewer = (_format_part(run, packets_of(run, "other") or 0) for run in (worse, other))
    return Reason(f"{more} packets only acknowledge, open or close ({other.label}: {fewer})", share)


def _format_part(run: Run, packets: int) -> str:
    return f"{packets:,} of {run.packets:,}"


_PARTS: dict[str, Callable[[Run, Run, float], Reason | None]] = {
    "data": _explain_data,
    "control": _explain_control,
    "other": _explain_other,
}
