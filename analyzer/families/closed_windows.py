"""Closed TCP receive windows that no packet opens while the RPC is open."""

import numpy as np

from ..facts import evidence, hosts, methods, ratings, stalls, unanswered
from ..model.budget import CAUSES
from ..model.finding import Evidence, Finding, Remedy
from ..model.text import count, duration
from ..tables import Ints, Tables
from ..tables.durations import clip_ns, total_ns
from ..tables.grouping import distinct

_CAUSE = CAUSES.index("receive_window")


def find_shut(tables: Tables) -> Ints:
    """Find the RPCs that a closed window blocked until their end, or the capture's: the first to stop first."""
    o = tables.open_rpcs
    rows = np.flatnonzero(o.cause == _CAUSE)
    return rows[np.argsort(o.since_time_ns[rows], kind="stable")]


def make_finding(tables: Tables, limits: stalls.TimeLimits, rows: Ints, ident: str) -> Finding:
    """Report the reader that blocked the first of them."""
    o = tables.open_rpcs
    connections = tuple(distinct(o.connection[rows]).tolist())
    lost = min(total_ns(tables.connection_budgets[list(connections), _CAUSE]), methods.rpc_time(tables))
    share = methods.share_of_time(tables, lost)
    readers = o.waits_for[rows]
    sender, reader = (hosts.name_hosts(tables, o.connection[rows], side) for side in (1 - readers, readers))
    longest = max(_get_wait(tables, row) for row in rows.tolist())
    return Finding(
        id=ident,
        title=f"{reader} kept its TCP receive window closed for {duration(longest)}, and {sender} "
        f"{'were' if hosts.are_many(sender) else 'was'} blocked",
        severity=ratings.severity(share, limits.warning_share, limits.critical_share),
        confidence=ratings.quality_allows(tables),
        scope=stalls.make_scope(tables, o.connection[rows], o.method[rows]),
        lost_ns=lost,
        share=share,
        metrics={"blocked_rpcs": len(rows), "longest_wait_ns": longest},
        evidence=tuple(
            item
            for row in rows[hosts.pick_apart(tables, o.connection[rows], evidence.FEW_EXAMPLES)].tolist()
            for item in _show(tables, row)
        ),
        explanation=_explain(tables, rows),
        remedies=_list_remedies(reader),
        references=("RFC 9293 section 3.8.6.1",),
        verdict=(
            f"{reader} did not read its socket for {duration(longest)}, so {sender} could not send: "
            "look at what that process does, or whether it is stopped."
        ),
    )


def _name_ends(tables: Tables, row: int) -> tuple[str, str]:
    """Return the blocked sender and the reader."""
    o = tables.open_rpcs
    connection, reader = int(o.connection[row]), int(o.waits_for[row])
    return hosts.host(tables, connection, 1 - reader), hosts.host(tables, connection, reader)


def _get_wait(tables: Tables, row: int) -> int:
    o = tables.open_rpcs
    return clip_ns(int(o.end_time_ns[row]) - int(o.since_time_ns[row]))


def _explain(tables: Tables, rows: Ints) -> str:
    o, row = tables.open_rpcs, int(rows[0])
    sender, reader = _name_ends(tables, row)
    where = f"connection {o.connection[row]}, stream {o.stream[row]}"
    stopped = unanswered.format_instant(tables, int(o.since_time_ns[row]))
    parts = [
        f"{sender} stopped inside a message at {stopped} ({where}). {reader} acknowledged all bytes and announced a "
        f"TCP receive window of 0. {sender} probed it, so it had more to send. Packets show that it was closed for "
        f"{duration(_get_wait(tables, row))}, and the message did not go on.",
        f"The kernel of {reader} answered, so its host and the path work: its process did not read the socket.",
    ]
    if len(rows) > 1:
        parts.append(f"{len(rows):,} RPCs waited like this.")
    if earlier := int((tables.waits.cause == _CAUSE).sum()):
        parts.append(f"{count(earlier, 'other blocked interval')} ended in the capture.")
    return " ".join(parts)


def _show(tables: Tables, row: int) -> tuple[Evidence, ...]:
    o = tables.open_rpcs
    where = f"connection {o.connection[row]}, stream {o.stream[row]}"
    _, reader = _name_ends(tables, row)
    return (
        Evidence(int(o.first_packet[row]), int(o.start_time_ns[row]), f"the RPC begins ({where})"),
        evidence.show_packet(o, "last_packet", row, f"its last bytes; the message is not complete ({where})"),
        evidence.show_packet(o, "heard_packet", row, f"the last packet of {reader}: its host is still there"),
    )


def _list_remedies(reader: str) -> tuple[Remedy, ...]:
    return (
        Remedy("application", "a dump of all stacks", f"on {reader}, while it hangs: shows what its threads wait for"),
        Remedy("linux", "ps -o stat,wchan", f"on {reader}: T is a stopped process, D one that waits for a device"),
        Remedy("linux", "none", f"on {reader}: a larger net.ipv4.tcp_rmem does not help, it is full a little later"),
    )
