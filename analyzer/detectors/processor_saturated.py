"""Threads that were ready to send waited for a processor.

What it finds
-------------
Calls are slow, and in the packets alone the client or the server seems to be slow. Its threads were ready to send and
did not run: the host's processors ran other threads of the same command, or other processes.

How it is decided
-----------------
`grpcdiag capture` as root records what the scheduler does. For each interval in which the recorded host had to act, it
shows which threads led to the send, when they ran, and what they waited for. A finding needs 50 such intervals. In half
of their time a thread must have been ready while its processor ran something else. Only time inside RPCs counts as
lost. A pause of the client of 10 ms or longer does not count if a timer ended it, or if it is not known what did.

It is a warning if that time is 5 % of the RPC time, or of the time from the first to the last message.

When it cannot tell
-------------------
Captures without a process record, or with one that is cut or lacks events. Connections that were opened before the
recording, or by another process than COMMAND or its children.

What would refute it
--------------------
The same run on a host with more processors, or without the other processes, is not faster.

What to do
----------
Run client and server on hosts of their own, or give them more processors. Stop what else runs there: the finding says
whether other processes took the time. If the command's own threads did, use fewer threads, or make each call cheaper:
larger batches, less logging, no compression.

References
----------
- https://docs.kernel.org/scheduler/sched-stats.html (time that threads wait for a processor)
"""

from collections.abc import Iterator

from ..facts import contradictions, hosts, methods, processes, ratings
from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Skipped
from ..model.text import duration
from ..tables import Processes, Tables
from ..tables.processes import PARTS

ID = "processor-saturated"
ABOUT = About(
    example="recorded/processes/processor-saturated.pcap.zst",
    figure=contradictions.thread_time("runnable", "other_processes"),
    caused_by=("cpu-quota",),
    precedence=2,
    needs_processes=True,
    explains=("threads",),
)
_READY = ("runnable", "other_processes")


class Limits(processes.WaitLimits, frozen=True, eq=False):
    critical_share: float = 0.3
    """Critical from this share of RPC time (heuristic: nearly a third of it)."""
    share: float = 0.5
    """Share of the time in which threads were ready and did not run (measured: 10 to 41 %, 60 to 82 % when starved)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the side that waited most for processors."""
    waited = processes.find_longest(tables, _READY, limits, limits.share)
    if waited and tables.processes and tables.processes.elsewhere:
        yield Skipped(
            ID, "a recorded process ran in a cgroup whose CPU quota is not in the record: it may have stopped it unseen"
        )
    elif waited and tables.processes:
        yield _make_finding(tables, tables.processes, waited, limits)


def _make_finding(tables: Tables, found: Processes, waited: processes.Waited, limits: Limits) -> Finding:
    connections = processes.list_connections(found, waited)
    host, total = hosts.name_hosts(tables, connections, waited.direction), duration(waited.total_ns)
    others = int(waited.parts[PARTS.index("other_processes")]) / max(waited.total_ns, 1)
    who = "other processes" if others >= 0.5 else "other threads of the command"
    return Finding(
        id=ID,
        title=f"Threads waited for a processor in {waited.share:.0%} of the time in which they had to act",
        severity=ratings.severity(waited.weight, limits.warning_share, limits.critical_share),
        confidence=processes.rate_confidence(tables, waited),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        lost_ns=waited.lost_ns,
        share=methods.share_of_time(tables, waited.lost_ns),
        metrics=processes.make_metrics(found, waited),
        evidence=tuple(processes.show_longest(found, waited, "waiting for a processor")),
        explanation=(
            f"{int(waited.chosen.sum()):,} times the recorded threads of {host} had to act. What led to their sends: "
            f"{processes.describe_parts(waited)}. A thread was ready and did not run for "
            f"{total}; its processor ran {who} for most of that time. "
            f"{processes.describe_places(waited)}. The host has {found.processors} processors."
        ),
        remedies=(
            Remedy("host", "more processors, or fewer other processes", "client and server on hosts of their own"),
            Remedy("application", "fewer threads, larger batches", "if the command's own threads took the time"),
        ),
        references=("https://docs.kernel.org/scheduler/sched-stats.html",),
        verdict=(
            f"{host} lacked processors: its threads were ready and waited {total}, {waited.share:.0%} of the time in "
            f"which they had to act, while {who} ran: give it more processors."
        ),
    )
