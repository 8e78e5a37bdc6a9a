"""Sort remedies so that those of the implementation seen come first."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.finding import Remedy
from ._software import find_none, is_of, recognise


def sort_by_implementation(remedies: Iterable[Remedy], implementation: str | None) -> tuple[Remedy, ...]:
    """Sort remedies so that those of the implementation seen come before the others; say so when it has none."""
    seen, found = recognise(implementation), tuple(remedies)
    own = tuple(remedy for remedy in found if is_of(remedy.implementation, seen))
    rest = tuple(remedy for remedy in found if remedy not in own)
    if seen is None or own or any(remedy.implementation in _EVERYBODY for remedy in found):
        return (*own, *rest)
    return (find_none(seen), *rest)


_EVERYBODY = ("any gRPC implementation", "application", "linux")
"""How remedies name what fits all software."""
