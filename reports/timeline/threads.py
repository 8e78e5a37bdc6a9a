"""Draw what led to a recorded host's sends under an RPC, one character for each part of the time."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from rich.text import Text

from ...analyzer.model.text import duration
from ...analyzer.tables import DIRECTIONS, Ints
from ...analyzer.tables.processes import PARTS, Processes, Steps
from ...analyzer.views.excerpt import Excerpt
from ..shared.drawing import NARROW
from .lanes import FIGURES, LABEL
from .page import STYLES, Page, wrapped

_LETTERS = dict(
    zip(
        ("running", "runnable", "other_processes", "wake_up", "throttled", "lock", "other_rpc", "timer", "io"),
        "RrowqLPTI",
        strict=True,
    )
)
_OTHERS_TURN = "."
_MOST_INTERVALS = 1_000
"""Most intervals of an RPC that are drawn, the longest (heuristic: more than a line has characters)."""


def show_threads(page: Page) -> Iterator[Text]:
    """Show a lane for each side whose threads were recorded in the RPC, with the time of each part."""
    excerpt, found = page.excerpt, page.excerpt.tables.processes
    if found is None or found.follow is None:
        return
    for side, name in enumerate(DIRECTIONS):
        rows = _find_intervals(excerpt, found, side)
        if not len(rows):
            continue
        sums = found.sum_parts(rows)
        steps = found.follow(rows[np.argsort(-found.acts.duration_ns[rows], kind="stable")[:_MOST_INTERVALS]])
        room = page.width - 2 if page.width < NARROW else page.width - LABEL - FIGURES
        lane = _draw_lane(steps, *_find_range(excerpt), room)
        label = f"  threads, {name}"
        if page.width < NARROW:
            yield from (Text(label), Text.assemble("  ", (lane, STYLES[side])))
        else:
            yield Text.assemble(f"{label:<{LABEL}}", (lane, STYLES[side]))
        spent = sorted(((int(ns), part) for ns, part in zip(sums, PARTS, strict=True) if ns), reverse=True)
        said = ", ".join(f"{_LETTERS.get(part, '?')} {part.replace('_', ' ')} {duration(ns)}" for ns, part in spent)
        yield from wrapped(f"what led to its sends: {said}", page.width, "  ")


def _find_intervals(excerpt: Excerpt, found: Processes, side: int) -> Ints:
    """Find the intervals of the RPC in which a side had to act."""
    acts = found.acts
    mine = (acts.connection == excerpt.connection) & (acts.stream == excerpt.stream)
    return np.flatnonzero(mine & (acts.direction == side) & (acts.idle == 0) & (acts.process > 0))


def _find_range(excerpt: Excerpt) -> tuple[int, int]:
    """Find the time that the other lanes have, too."""
    times = excerpt.packets.time_ns
    return (int(times[0]), int(times[-1])) if len(times) else (excerpt.start_ns, excerpt.end_ns)


def _draw_lane(steps: Steps, first: int, last: int, columns: int) -> str:
    """Draw in each column the part that has most of its time."""
    edges = np.linspace(first, max(last, first + columns), columns + 1).astype(np.int64)[:, np.newaxis]
    # how much of each step lies before each edge; the difference of two edges lies between them
    within = np.diff(np.clip(edges - steps.start_time_ns, 0, steps.end_time_ns - steps.start_time_ns), axis=0)
    shares: npt.NDArray[np.int64] = np.stack(
        [within[:, steps.part == part].sum(axis=1) for part in range(len(PARTS))], axis=1
    )
    letters = [_LETTERS.get(part, "?") for part in PARTS]
    longest = shares.argmax(axis=1).tolist()
    return "".join(letters[part] if shares[at, part] else _OTHERS_TURN for at, part in enumerate(longest))
