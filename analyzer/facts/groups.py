"""Puts equals together: what a detector found at several hosts is one finding, with its sums and all their names.

A detector judges each scope by itself: a host, or the connections between two hosts. Scopes of one kind become one
group, which the detector describes by the scope that costs most. So one host and eighty alike have the same verdict.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct

from ..model.finding import Finding
from ..tables import Tables
from . import evidence, hosts
from .methods import rpc_time, share_of_time

Fact = TypeVar("Fact")
"""What a detector measured in one scope."""


class Case(Struct, Generic[Fact], frozen=True, eq=False):
    """A scope in which a detector found its pattern."""

    fact: Fact
    connections: tuple[int, ...]
    """Its connections; the first one names its hosts."""
    direction: int
    """The host it is about sends in this direction."""
    weight: float
    """Of equal cases the one with the largest weight is described."""
    lost_ns: int | None = None
    """Time that its RPCs lost; None when no latency cost was measured."""
    kind: str = ""
    """Only cases of one kind are equal."""


class Group(Struct, Generic[Fact], frozen=True, eq=False):
    """Equal cases, that with the largest weight first."""

    tables: Tables
    cases: tuple[Case[Fact], ...]

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return what was measured in each scope."""
        return tuple(case.fact for case in self.cases)

    @property
    def shown(self) -> tuple[Fact, ...]:
        """Return the facts from which evidence is taken: of different scopes."""
        return self.facts[: evidence.EXAMPLES]

    def limit_moments(self, most: int | None = None) -> int:
        """Return how many moments of each of these facts to show: `most` of a single one, one each of several."""
        return (most or evidence.EXAMPLES) if len(self.cases) == 1 else 1

    @property
    def connections(self) -> tuple[int, ...]:
        """Return all connections, in order."""
        return tuple(sorted({one for case in self.cases for one in case.connections}))

    @property
    def lost_ns(self) -> int | None:
        """Return the time that the RPCs of all scopes lost: never more than there is."""
        known = [case.lost_ns for case in self.cases if case.lost_ns is not None]
        return min(sum(known), rpc_time(self.tables)) if known else None

    @property
    def share(self) -> float | None:
        """Return this time as a share of all RPC time."""
        return None if self.lost_ns is None else share_of_time(self.tables, self.lost_ns)

    @property
    def who(self) -> str:
        """Name the hosts: `server 10.0.0.2`, or `3 of 80 servers (10.0.0.2 and others)`."""
        return self._name(0)

    @property
    def peers(self) -> str:
        """Name the hosts at the other end."""
        return self._name(1)

    def _name(self, other: int) -> str:
        return hosts.name_hosts(
            self.tables,
            [case.connections[0] for case in self.cases],
            np.array([case.direction ^ other for case in self.cases]),
        )

    def say(self, one: str, several: str) -> str:
        """Choose the words for one host, or for several."""
        return several if hosts.are_many(self.who) else one

    def write_each(self, size: Callable[[Fact], int], written: Callable[[int], str]) -> str:
        """Write a figure of each scope, the largest one as a bound where they differ: `up to 5 times each`."""
        sizes = [size(fact) for fact in self.facts]
        if len(sizes) == 1:
            return written(sizes[0])
        alike = written(min(sizes)) == written(max(sizes))
        return f"{'' if alike else 'up to '}{written(max(sizes))} each"


def put_together(
    tables: Tables, cases: Iterable[Case[Fact]], write: Callable[[Group[Fact]], Finding | None]
) -> Iterator[Finding]:
    """Yield one finding about all cases of each kind, the kind that weighs most first.

    `write` returns None where they do not matter even together.
    """
    kinds = dict[str, list[Case[Fact]]]()
    for case in sorted(cases, key=lambda case: -case.weight):
        kinds.setdefault(case.kind, []).append(case)
    for equals in sorted(kinds.values(), key=lambda equals: -sum(case.weight for case in equals)):
        if (finding := write(Group(tables, tuple(equals)))) is not None:
            yield finding
