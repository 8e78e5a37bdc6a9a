"""Threads that had to send waited for a lock, or for a queue of work, that they share.

What it finds
-------------
More threads or connections make nothing faster, and processors have time left. Threads of the client or the server wait
for each other: for a lock around a stub, a logger, an allocator, or for an interpreter with a global lock.

How it is decided
-----------------
`grpcdiag capture --processes full` records what the scheduler does and which words in memory threads wait for
(futex(2)). A word is a contended lock if three threads or more wait for it at once, and the thread that wakes one of
them has waited for it shortly before. Idle workers to whom another thread hands work are no lock: that thread does not
wait among them. A finding needs 50 intervals in which the host had to act, with 20 % of their time in waits for locks.

It is a warning if these waits are 5 % of the RPC time, or of the time from the first to the last message. It is `info`
if no thread waited inside an RPC. Only time inside RPCs counts as lost. A pause of the client of 10 ms or longer does
not count if a timer ended it, or if it is not known what did.

When it cannot tell
-------------------
A pool whose workers hand work to each other waits for a queue in the same way; so the confidence is medium at most, and
nothing is critical. Captures without a process record, or with one without waits for locks (`--processes on`). Locks of
the Go runtime do not show in the record: such a client waits for other RPCs instead. The record has words in memory,
not the names of locks.

What would refute it
--------------------
A profile of waits (`perf lock`, a thread dump) that shows the threads elsewhere.

What to do
----------
Find the lock with a profile. Hold it for less, above all not during a call. A stub needs no lock: all gRPC
implementations allow calls from many threads at once. In Python use several processes.

References
----------
- https://man7.org/linux/man-pages/man2/futex.2.html
- https://grpc.io/docs/guides/performance/
"""

from collections.abc import Iterator

from ..facts import contradictions, hosts, methods, processes, ratings
from ..model.detector import About
from ..model.finding import Finding, Remedy, Scope, Skipped
from ..model.text import duration
from ..software import intents, settings
from ..software.recognise import C_CORE
from ..tables import Processes, Tables

ID = "lock-contention"
ABOUT = About(
    example="recorded/processes/lock-contention.pcap.zst",
    figure=contradictions.thread_time("lock"),
    precedence=3,
    needs_processes=True,
    explains=("threads",),
)


class Limits(processes.WaitLimits, frozen=True, eq=False):
    share: float = 0.2
    """Share of the time in waits for locks (heuristic: below it other parts matter more)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the side that waited most for locks."""
    if tables.processes and not tables.processes.locks:
        yield Skipped(ID, "waits for locks were not recorded: grpcdiag capture --processes full records them")
        return
    waited = processes.find_longest(tables, ["lock"], limits, limits.share)
    if waited and tables.processes:
        yield _make_finding(tables, tables.processes, waited, limits)


def _make_finding(tables: Tables, found: Processes, waited: processes.Waited, limits: Limits) -> Finding:
    connections = processes.list_connections(found, waited)
    host, total = hosts.name_hosts(tables, connections, waited.direction), duration(waited.total_ns)
    return Finding(
        id=ID,
        title=f"Threads waited for a shared lock or queue in {waited.share:.0%} of the time in which they had to act",
        severity="warning" if waited.total_ns > waited.idle_ns and waited.weight >= limits.warning_share else "info",
        confidence=ratings.lower("medium", processes.rate_confidence(tables, waited)),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        lost_ns=waited.lost_ns,
        share=methods.share_of_time(tables, waited.lost_ns),
        metrics=processes.make_metrics(found, waited),
        evidence=tuple(
            processes.show_longest(found, waited, "waiting for a lock or queue that other threads wait for")
        ),
        explanation=(
            f"{int(waited.chosen.sum()):,} times the recorded threads of {host} had to act. What led to their sends: "
            f"{processes.describe_parts(waited)}. {processes.describe_places(waited)}. "
            "Three threads or more waited for the same word in memory at once, and each was woken by one that had "
            "waited, too: as at a contended lock, or at a queue whose workers hand work to each other."
        ),
        remedies=(
            Remedy("application", "a profile of waits (perf lock, a thread dump)", "names the lock, or the queue"),
            *settings.list_own(intents.SHARED_STUBS, C_CORE),
        ),
        references=("https://man7.org/linux/man-pages/man2/futex.2.html",),
        verdict=(
            f"Threads of {host} waited {total} for a lock or queue that they share, {waited.share:.0%} of the time in "
            "which they had to act: take a profile of waits, which tells the two apart."
        ),
    )
