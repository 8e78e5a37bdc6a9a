"""The reports of `verify`, as text and as JSON: counts side by side, then the differences with their packets."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..analyzer import _core
from ..analyzer.model.text import count, list_first, safe
from ..analyzer.verify.difference import Comparison, Difference
from .analysis_json import encode, read_schema
from .shared.drawing import BAD, CAUTION, GOOD, NOTE, draw, pair

SCHEMA = "grpcdiag.verification/1"
"""Name and version of the structure."""

_RIGHT = {
    "grpcdiag": "grpcdiag is right",
    "wireshark": "Wireshark is right",
    "both": "both are right",
    None: "undecided: the packets do not show who is right",
}
_STYLES = {"grpcdiag": GOOD, "wireshark": CAUTION, "both": NOTE, None: ""}
_PLURAL = {"status": "statuses"}

_Kind = tuple[bool, str, str, str, bool]


def render_json(comparison: Comparison, *, files: Sequence[str], wireshark: str) -> str:
    """Render the comparison as one JSON document with a final newline; `wireshark` is Wireshark's version."""
    return encode(document(comparison, files=files, wireshark=wireshark))


def document(comparison: Comparison, *, files: Sequence[str], wireshark: str) -> dict[str, Any]:
    """Build the document of dictionaries and lists."""
    return {
        "schema": SCHEMA,
        "version": _core.__version__,
        "wireshark_version": wireshark,
        "files": list(files),
        "counts": [{"name": c.name, "grpcdiag": c.ours, "wireshark": c.theirs} for c in comparison.counts],
        "differences": [_describe_difference(difference) for difference in comparison.differences],
        "explained": len(comparison.differences) - comparison.unexplained,
        "unexplained": comparison.unexplained,
        "notes": list(comparison.notes),
    }


def _describe_difference(difference: Difference) -> dict[str, Any]:
    why = difference.why
    return {
        "what": difference.what,
        "packet": difference.packet,
        "connection": difference.connection,
        "stream": difference.stream,
        "grpcdiag": difference.ours,
        "wireshark": difference.theirs,
        "explained": why is not None,
        "rule": why.rule if why else None,
        "right": why.right if why else None,
        "why": why.text if why else None,
    }


def schema() -> dict[str, Any]:
    """Read the published JSON Schema of the document."""
    return read_schema("verification-1.json")


def render(
    comparison: Comparison,
    *,
    files: Sequence[str],
    wireshark: str,
    width: int = 100,
    colour: bool = False,
    limit: int = 5,
) -> str:
    """Render the comparison as text; `limit` is the number of differences shown of each kind, 0 shows all."""
    head = Text(safe(list_first(files, 1)), style="bold").append(
        f"  read by grpcdiag {_core.__version__} and by Wireshark {safe(wireshark)}", style="not bold"
    )
    parts: list[RenderableType] = [head, _show_verdict(comparison), Text(), _show_counts(comparison)]
    ordered = sorted(comparison.differences, key=_classify)
    for kind, group in groupby(ordered, key=_classify):
        parts += [Text(), _show_group(kind, list(group), limit)]
    parts += [Text(f"\nnote: {safe(note)}", style="dim") for note in comparison.notes]
    return draw(parts, width=max(60, width), colour=colour)


def _show_verdict(comparison: Comparison) -> Text:
    total, open_ = len(comparison.differences), comparison.unexplained
    if not total:
        return Text("no difference", style=GOOD)
    number = count(total, "difference")
    if not open_:
        return Text(f"{number}, {'it is' if total == 1 else 'all'} explained", style=GOOD)
    return Text(f"{number}, {open_:,} unexplained", style=BAD)


def _show_counts(comparison: Comparison) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("")
    for name in ("grpcdiag", "Wireshark", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in comparison.counts:
        apart = f"{row.ours - row.theirs:+,}" if row.ours != row.theirs else ""
        table.add_row(row.name, f"{row.ours:,}", f"{row.theirs:,}", Text(apart, style=CAUTION))
    return table


def _classify(difference: Difference) -> _Kind:
    """Give the key by which differences are grouped: unexplained ones first, then by rule."""
    why = difference.why
    return (
        why is not None,
        difference.what,
        why.rule if why else "",
        (why.right or "") if why else "",
        difference.ours is None,
    )


def _show_group(kind: _Kind, differences: list[Difference], limit: int) -> RenderableType:
    why = differences[0].why
    head = Text(count(len(differences), kind[1], _PLURAL.get(kind[1])), style="bold")
    if why:
        head.append(f"  {why.rule}  ", style="not bold")
        head.append(_RIGHT[why.right], style=f"not bold {_STYLES[why.right]}")
    else:
        head.append("  unexplained", style=BAD)
    shown = differences[:limit] if limit else differences
    table = pair(((f" #{one.packet}", _show_difference(one)) for one in shown), justify="right")
    left = len(differences) - len(shown)
    more = [Text(f"... and {left:,} more: {_list_packets(differences[len(shown) :])}", style="dim")] if left else []
    return Group(head, table, *more)


def _show_difference(difference: Difference) -> RenderableType:
    where = "" if difference.connection is None else f"connection {difference.connection}"
    where += "" if difference.stream is None else f", stream {difference.stream}"
    ours, theirs = (safe(text) if text else "nothing" for text in (difference.ours, difference.theirs))
    line = Text(f"{where}: " if where else "")
    line.append(f"grpcdiag: {ours}; Wireshark: {theirs}")
    return Group(line, *([Text(safe(difference.why.text), style="dim")] if difference.why else []))


_MOST_RANGES = 8


def _list_packets(differences: Iterable[Difference]) -> str:
    """List the first packet numbers and the last one."""
    numbers = sorted({difference.packet for difference in differences})
    shown = ", ".join(f"#{number}" for number in numbers[:_MOST_RANGES])
    return shown + (f" to #{numbers[-1]}" if len(numbers) > _MOST_RANGES else "") + " (--limit 0 shows all)"
