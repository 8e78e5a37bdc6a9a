"""Say for each recorded process what led to its sends."""

from collections.abc import Iterator, Sequence

from ...analyzer.model.budget import PARTS
from ...analyzer.model.recorded import ProcessFacts
from ...analyzer.model.text import count, duration

HEAD = "what led to the sends, as the scheduler recorded it"


def describe_processes(processes: Sequence[ProcessFacts]) -> Iterator[str]:
    """Give a line for each process, with the largest parts first."""
    for one in processes:
        whole = max(one.total_ns, 1)
        parts = sorted(((getattr(one, f"{part}_ns"), part) for part in PARTS), reverse=True)
        said = ", ".join(f"{part.replace('_', ' ')} {ns / whole:.0%}" for ns, part in parts if ns >= 0.005 * whole)
        yield f"{one.side} {one.name} ({one.pid}): {count(one.intervals, 'interval')}, {duration(whole)}: {said}"
