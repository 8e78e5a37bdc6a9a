"""DNS lookups in front of a connection."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

import numpy as np
from msgspec import Struct

from ..model.finding import Evidence
from ..model.text import count, duration, safe
from ..tables import Ints, Tables
from .evidence import show_packet

PORT = 53
"""Port of DNS servers, over UDP and TCP (RFC 1035 section 4.2)."""
TYPES = {1: "A", 16: "TXT", 28: "AAAA", 33: "SRV", 65: "HTTPS"}
"""Names of record types (IANA DNS parameters)."""
ADDRESSES = (1, 28)
"""Record types with an address to connect to: A and AAAA."""
NO_SUCH_NAME = 3
"""Response code NXDOMAIN (RFC 1035 section 4.1.1)."""
PREFIXES = ("_grpc_config.", "_grpclb._tcp.")
"""What gRPC's resolvers put in front of a name: service config (gRFC A2), balancers."""
UNANSWERED_NS = 30_000_000_000
"""Longest time that an unanswered question delays: two queries of 5 s to three servers (resolv.conf(5))."""


class Chain(Struct, frozen=True, eq=False):
    """Lookups that followed each other until the first SYN."""

    lookups: tuple[int, ...]
    """Rows of the lookups, by the time of their questions."""
    begin_ns: int
    end_ns: int


def find_lookups_before(
    tables: Tables, connections: Ints, attempts: dict[int, list[int]], at_once_ns: int
) -> dict[int, Chain]:
    """Find the lookups of each connection's name that ended right before its first SYN or its first failed attempt."""
    asked, c = tables.lookups, tables.connections
    if not len(asked.time_ns):
        return {}
    index = _Index.make(tables)
    previous: dict[tuple[int, int], int] = {}
    found: dict[int, Chain] = {}
    for row in connections.tolist():
        first = attempts.get(row, [row])[0]
        key, syn = (int(c.server_port[row]), int(c.client_ip[row])), int(c.first_time_ns[first])
        begin, end = np.searchsorted(asked.time_ns, (previous.get(key, -1), syn)).tolist()
        lookups = index.list_lookups({int(c.server_ip[one]) for one in (first, row)}, begin, end)
        chain = _collect(tables, lookups, int(c.client_ip[first]), syn, at_once_ns)
        if chain is not None:
            found[row] = chain
        previous[key] = int(c.first_time_ns[row])
    return found


class _Index(Struct, frozen=True, eq=False):
    """Which lookups were made for the names of a server."""

    names: dict[int, frozenset[str]]
    """The names that were answered with each address."""
    lookups: dict[str, list[int]]
    """Rows of the lookups for each of these names, in the order of time."""
    of_names: dict[frozenset[str], list[int]]
    """The same for all names of a server; filled as servers are asked for."""

    @classmethod
    def make(cls, tables: Tables) -> _Index:
        """Index all lookups."""
        given, names, lookups = tables.lookup_addresses, dict[int, set[str]](), dict[str, list[int]]()
        for row, address in zip(given.lookup.tolist(), given.address.tolist(), strict=True):
            names.setdefault(address, set()).add(tables.lookup_names[int(tables.lookups.name[row])])
        answered = set[str]().union(*names.values())
        made_for = [list_stems(name) & answered for name in tables.lookup_names]
        for row, number in enumerate(tables.lookups.name.tolist()):
            for name in made_for[number]:
                lookups.setdefault(name, []).append(row)
        return cls({address: frozenset(some) for address, some in names.items()}, lookups, {})

    def list_lookups(self, addresses: Iterable[int], begin: int, end: int) -> Iterator[int]:
        """List the rows from `begin` to `end` for the names of some addresses, the last one first."""
        first, *more = {self.names.get(address, frozenset[str]()) for address in addresses}
        names = first.union(*more) if more else first
        rows = self.of_names.get(names)
        if rows is None:
            rows = self.of_names[names] = sorted({row for name in names for row in self.lookups.get(name, ())})
        return (rows[place] for place in range(bisect_left(rows, end) - 1, bisect_left(rows, begin) - 1, -1))


def list_stems(name: str) -> set[str]:
    """List the names that a lookup may be for: its own, and without a search domain or a resolver's prefix."""
    bare = next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)
    return set(accumulate(bare.split("."), "{}.{}".format))


def _may_be_of(tables: Tables, lookup: int, client_ip: int) -> bool:
    """Check whether a host may have asked: by the same address, by loopback, or over the other version of IP."""
    asked, client = (tables.addresses[number] for number in (int(tables.lookups.client_ip[lookup]), client_ip))
    return asked == client or asked.startswith("127.") or asked == "::1" or (":" in asked) != (":" in client)


def _collect(tables: Tables, lookups: Iterable[int], client_ip: int, syn_ns: int, at_once_ns: int) -> Chain | None:
    """Collect lookups backwards from the SYN, as long as each ended right before the next step.

    One that failed is asked again after a back-off, unless an address was known before.
    """
    asked, lookups = tables.lookups, [row for row in lookups if _may_be_of(tables, row, client_ip)]
    early = (int(asked.answer_time_ns[row]) for row in lookups if asked.answer_packet[row] and not asked.code[row])
    known = max((answered for answered in early if answered < syn_ns - at_once_ns), default=-1)
    begin, end, chosen = syn_ns, -1, list[int]()
    for row in lookups:
        start, answered = int(asked.time_ns[row]), int(asked.answer_time_ns[row])
        if start < begin - UNANSWERED_NS:
            break
        again = asked.code[row] and int(asked.kind[row]) in ADDRESSES and start > known
        if answered < 0 or answered >= begin - (UNANSWERED_NS if again else at_once_ns):
            chosen.append(row)
            begin = min(begin, start)
            end = max(end, min(answered, syn_ns) if answered >= 0 else syn_ns)
    return Chain(tuple(reversed(chosen)), begin, end) if chosen else None


def describe(tables: Tables, row: int) -> str:
    """Name a question: `svc.test (A)`."""
    asked = tables.lookups
    kind = int(asked.kind[row])
    return f"{safe(tables.lookup_names[int(asked.name[row])])} ({TYPES.get(kind, f'type {kind}')})"


def sum_up(tables: Tables, chain: Chain) -> str:
    """Say what was asked and answered: `9 questions, 7 of them for names that do not exist`."""
    asked, rows = tables.lookups, list(chain.lookups)
    codes = Counter(int(asked.code[row]) for row in rows if asked.answer_packet[row])
    unanswered = sum(1 for row in rows if not asked.answer_packet[row])
    names = list(dict.fromkeys(describe(tables, row) for row in rows))
    parts = [f"{count(len(rows), 'question')}, {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"]
    if codes[NO_SUCH_NAME]:
        parts.append(f"{codes[NO_SUCH_NAME]:,} answered with no such name (NXDOMAIN)")
    if unanswered:
        parts.append(f"{unanswered:,} not answered")
    slowest = max(
        (int(asked.answer_time_ns[row] - asked.time_ns[row]) for row in rows if asked.answer_packet[row]), default=0
    )
    return "; ".join([*parts, f"the slowest answer took {duration(slowest)}"] if slowest else parts)


def show_end(tables: Tables, row: int) -> Evidence:
    """Show the answer of a lookup, or its first query."""
    asked, name = tables.lookups, describe(tables, row)
    if asked.answer_packet[row]:
        code = f" with response code {asked.code[row]}" if asked.code[row] else ""
        return show_packet(asked, "answer_packet", row, f"DNS answer for {name}{code}")
    return show_packet(asked, "packet", row, f"DNS question for {name}, not answered")
