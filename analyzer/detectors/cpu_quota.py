"""A cgroup's CPU quota stopped the threads that had to send.

What it finds
-------------
Calls pause for up to 100 ms, again and again, although the host seems to have processor time left. A container or
service used up its CPU limit (`cpu.max`, `limits.cpu` of Kubernetes), and the kernel stopped all its threads until the
next period.

In the packets alone this looks like garbage collection.

How it is decided
-----------------
`grpcdiag capture` as root records what the scheduler does, and reads `cpu.stat` of the command's cgroup and of those
above it every 20 ms. Time counts as throttled if a thread that had to act before a send was ready, its processor ran no
thread of the command, and `cpu.stat` counted throttled time then. A finding needs 50 intervals in which the host had to
act, with 10 % of their time throttled. Only time inside RPCs counts as lost. A pause of the client of 10 ms or longer
does not count if a timer ended it, or if it is not known what did.

It is a warning if the throttled time is 5 % of the RPC time, or of the time from the first to the last message.

When it cannot tell
-------------------
Captures without a process record, or with one that is cut or lacks events. The moments of throttling are known to
20 ms. The cgroup is that of COMMAND; children in other cgroups are not watched.

What would refute it
--------------------
`nr_throttled` in the cgroup's `cpu.stat` does not grow during the run.

What to do
----------
Raise the limit, or remove it and keep the request (`cpu.weight`). Use fewer threads: many threads use up the quota of a
period within milliseconds (GOMAXPROCS, `-XX:ActiveProcessorCount`).

References
----------
- https://docs.kernel.org/scheduler/sched-bwc.html
- https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
"""

from collections.abc import Iterator

from ..facts import contradictions, hosts, methods, processes, ratings
from ..model.detector import About
from ..model.finding import Finding, Scope, Skipped
from ..model.text import duration
from ..software import intents, settings
from ..tables import Processes, Tables
from ..tables.processes import Quota

ID = "cpu-quota"
ABOUT = About(
    example="recorded/processes/cpu-quota.pcap.zst",
    figure=contradictions.thread_time("throttled"),
    precedence=1,
    needs_processes=True,
    explains=("threads",),
)


class Limits(processes.WaitLimits, frozen=True, eq=False):
    critical_share: float = 0.3
    """Critical from this share of RPC time (heuristic: nearly a third of it)."""
    share: float = 0.1
    """Share of the time that was throttled (heuristic: below it the quota is used up now and then)."""


def detect(tables: Tables, limits: Limits) -> Iterator[Finding | Skipped]:
    """Yield one finding about the side that was throttled most."""
    waited = processes.find_longest(tables, ["throttled"], limits, limits.share)
    if waited and tables.processes:
        yield _make_finding(tables, tables.processes, waited, limits)


def _make_finding(tables: Tables, found: Processes, waited: processes.Waited, limits: Limits) -> Finding:
    connections = processes.list_connections(found, waited)
    host, total = hosts.name_hosts(tables, connections, waited.direction), duration(waited.total_ns)
    quota = _find_quota(found, waited)
    allowed = f" ({quota.processors:g} processors)" if quota.processors else ""
    counted = quota.throttled_ns
    in_all = "" if counted is None else f", {duration(counted)} of all processors together"
    return Finding(
        id=ID,
        title=f"A CPU quota{allowed} stopped threads in {waited.share:.0%} of the time in which they had to act",
        severity=ratings.severity(waited.weight, limits.warning_share, limits.critical_share),
        confidence=processes.rate_confidence(tables, waited),
        scope=Scope(connections, methods.methods_of_connections(tables, connections)),
        lost_ns=waited.lost_ns,
        share=methods.share_of_time(tables, waited.lost_ns),
        metrics=processes.make_metrics(found, waited) | _count_throttling(quota),
        evidence=tuple(processes.show_longest(found, waited, "throttled")),
        explanation=(
            f"{int(waited.chosen.sum()):,} times the recorded threads of {host} had to act. What led to their sends: "
            f"{processes.describe_parts(waited)}. {duration(waited.total_ns)} were throttled; "
            f"{processes.describe_places(waited)}. {len(quota.throttled):,} times "
            f"cpu.stat of its cgroup{allowed} had counted throttled time since the look before{in_all}."
        ),
        remedies=tuple(one for name in _LAYERS for one in settings.list_own(intents.CPU_QUOTA, name)),
        references=("https://docs.kernel.org/scheduler/sched-bwc.html",),
        verdict=(
            f"{host} used up its CPU quota{allowed}: its threads were stopped for {total}, {waited.share:.0%} of the "
            "time in which they had to act: raise the limit."
        ),
    )


def _find_quota(found: Processes, waited: processes.Waited) -> Quota:
    """Find the quota of the process that was throttled longest."""
    longest = max(found.quotas, key=lambda process: int(waited.ns[found.acts.process == process].sum()))
    return found.quotas[longest]


def _count_throttling(quota: Quota) -> dict[str, int | float | str]:
    figures: dict[str, int | float | str] = {"throttled_times": len(quota.throttled)}
    figures |= {} if quota.throttled_ns is None else {"cgroup_throttled_ns": quota.throttled_ns}
    return figures | ({} if quota.processors is None else {"quota_processors": quota.processors})


_LAYERS = ("Kubernetes", "linux", "grpc-go")
"""Where a quota is set, and who should know of it."""
