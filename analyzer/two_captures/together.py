"""Combine two captures: the analysis of the client's capture, and what the server's capture adds."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from ..analysis import analyze, of_capture, of_tables
from ..decode.decode import decode
from ..decode.errors import NoGrpcError, TooLargeError
from ..decode.runner import DecodeOptions, Progress
from ..detectors import ABOUTS
from ..model.analysis import Analysis, Apart, Quantiles
from ..model.ends import ClockFacts, Ends, EndsCapture, EndsConnection, EndsMethod, LostPacket, Way
from ..model.finding import Finding
from ..summary.figures import TLS, may_have_rpcs
from ..summary.quantiles import make_quantiles, quantiles_of
from ..tables import Counts, Ints, Tables
from ..tables.durations import totals_ns
from ..tables.grouping import group_rows, take_rows
from .clock import NoClock
from .connections import Pair
from .losses import Losses
from .matching import Crossing
from .places import vantages
from .recorded import RETRANSMISSION, Recorded, Trace, read
from .relate import Described, RelatedCaptures, convert_to_client, describe_nothing, relate_captures
from .split import SPLIT_CAUSES, Delays, Split, split

LISTED = 1_000
"""Most lost packets listed per direction."""


def analyze_files(
    files: Sequence[str],
    *,
    described: Described = describe_nothing,
    synchronised: bool = False,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> Analysis:
    """Analyse several files, which may be pieces of one rotated capture or captures at two places.

    `synchronised` takes the clocks of two places as they are. Raises CaptureError, and NoGrpcError when none has gRPC.
    """
    places = vantages(files, **how)
    if len(places) == 1:
        tables = decode(files, rpc_rows=False, progress=progress, **how)
        if not tables.capture["time_steps_back"]:
            return of_capture(files, tables, *described(files), progress, **how)
        # pieces of one capture follow each other in time; overlapping files may be captures at two places
        places = vantages(files, whole=True, **how)
        if len(places) == 1:
            return of_capture(files, tables, *described(files), progress, **how)
    if len(places) > 2:
        return _analyze_apart(
            places, f"they were captured at {len(places)} places, and only two can be combined", progress, how
        )
    try:
        return _combine(_read_both(places, progress, how), described, synchronised)
    except (NoClock, TooLargeError) as error:
        return _analyze_apart(places, str(error), progress, how)
    except NoGrpcError:
        return _analyze_apart(places, "the client's capture has no gRPC", progress, how)


class RpcBudgets(Struct, frozen=True, eq=False):
    """The RPCs of the client's capture with budgets from both captures."""

    tables: Tables
    """Tables of the client's capture."""
    budgets: Ints
    """Nanoseconds per RPC and cause of `SPLIT_CAUSES`."""
    symmetry_assumed: bool
    """See `Ends.symmetry_assumed`."""


def rpc_budgets(
    places: Sequence[Sequence[str]],
    *,
    described: Described = describe_nothing,
    synchronised: bool = False,
    progress: Progress | None = None,
    **how: Unpack[DecodeOptions],
) -> RpcBudgets:
    """Divide every RPC's time with both captures. Raises CaptureError, TooLargeError, NoClock."""
    met = relate_captures(_read_both(places, progress, how), described, synchronised)
    return RpcBudgets(met.client.tables, _split(met).budgets, met.source == "symmetric_path")


def _read_both(
    places: Sequence[Sequence[str]], progress: Progress | None, how: DecodeOptions
) -> tuple[Recorded, Recorded]:
    first, second = (read(files, progress=progress, **how) for files in places)
    return first, second


def _analyze_apart(
    places: Sequence[Sequence[str]], reason: str, progress: Progress | None, how: DecodeOptions
) -> Analysis:
    """Analyse each capture separately. Raises CaptureError, and NoGrpcError when none has gRPC."""
    analyses: list[Analysis] = []
    encrypted: list[Analysis] = []
    without = None
    for files in places:
        try:
            analyses.append(analyze(files, progress=progress, **how))
        except NoGrpcError as error:
            without = error
            encrypted += [error.analysis] if error.analysis else []
    if without and not analyses:
        if len(encrypted) > 1:
            without.analysis = replace(encrypted[0], apart=Apart(reason, tuple(encrypted[1:])))
        raise without
    if without:
        reason += f"; one of them has no gRPC ({without})"
    return replace(analyses[0], apart=Apart(reason, tuple(analyses[1:])))


def _combine(both: tuple[Recorded, Recorded], described: Described, synchronised: bool) -> Analysis:
    met = relate_captures(both, described, synchronised)
    tables = met.client.tables
    analysis, ends = of_tables(tables, *described([file["name"] for file in tables.capture["files"]])), _summarize(met)
    return replace(analysis, ends=ends, findings=tuple(_add_losses(finding, ends) for finding in analysis.findings))


def _add_losses(finding: Finding, ends: Ends) -> Finding:
    """Add the losses seen from both ends to the finding about losses."""
    if not ABOUTS[finding.id].counts_losses:
        return finding
    needless = ends.up.needless_retransmissions + ends.down.needless_retransmissions
    metrics: dict[str, int | float | str] = {
        "lost_up": ends.up.lost_packets,
        "lost_down": ends.down.lost_packets,
        "needless_retransmissions": needless,
    }
    text = (
        f"{finding.explanation} Both captures show that {ends.up.lost_packets:,} of the client's "
        f"{ends.up.packets:,} packets and {ends.down.lost_packets:,} of the server's {ends.down.packets:,} were lost "
        f"between them. {needless:,} packets were retransmitted although they had arrived."
    )
    return replace(finding, metrics={**finding.metrics, **metrics}, explanation=text)


def _summarize(met: RelatedCaptures) -> Ends:
    divided, clock = _split(met), met.clock
    return Ends(
        client=EndsCapture(tuple(met.client.files), _count_unshared(met.client, {pair.first for pair in met.shared})),
        server=EndsCapture(tuple(met.server.files), _count_unshared(met.server, {pair.second for pair in met.shared})),
        clock=ClockFacts(
            since_time_ns=clock.since_ns,
            offset_ns=clock.offset_ns,
            uncertainty_ns=clock.uncertainty_ns,
            drift_ppb=clock.drift_ppb if clock.drift_known else None,
            drift_low_ppb=clock.drift_low_ppb,
            drift_high_ppb=clock.drift_high_ppb,
            source=met.source,
            hosts_error_ns=met.hosts_error_ns,
        ),
        symmetry_assumed=met.source == "symmetric_path",
        matched_packets=int((met.up.origin >= 0).sum() + (met.down.origin >= 0).sum()),
        connections=tuple(_describe_connections(met)),
        up=_describe_way(met.up, met.up_losses),
        down=_describe_way(met.down, met.down_losses),
        budget=_name_causes(totals_ns(divided.budgets)),
        methods=tuple(_describe_methods(met.client, divided)),
    )


def _split(met: RelatedCaptures) -> Split:
    return split(
        met.client, met.server, [pair for pair in met.shared if not met.turned[pair.first]], _collect_delays(met)
    )


def _count_unshared(recorded: Recorded, shared: set[int]) -> int:
    protocol = recorded.tables.connections.protocol
    rows = np.flatnonzero(may_have_rpcs(protocol) | (protocol == TLS))
    return sum(int(row) not in shared for row in rows)


def _collect_delays(met: RelatedCaptures) -> Delays:
    """Collect one-way delays by number of the received packet."""
    (up, sent_up), (down, sent_down) = _take_received(met.up), _take_received(met.down)
    at_server, at_client = met.server.tables.capture["packets"] + 1, met.client.tables.capture["packets"] + 1
    return Delays(
        up=_index_by_number(met.up.received.packet, met.up.delay, at_server, -1),
        down=_index_by_number(met.down.received.packet, met.down.delay, at_client, -1),
        sent_up=_index_by_number(up, sent_up.time_ns, at_server, 0),
        sent_down=_index_by_number(down, sent_down.time_ns, at_client, 0),
        repeats=_index_by_number(down, sent_down.note == RETRANSMISSION, at_client, 0).astype(bool),
        by_client=partial(convert_to_client, met.clock),
    )


def _take_received(way: Crossing) -> tuple[Counts, Trace]:
    """Take the numbers of matched received packets, and the sent packets that they are."""
    found = way.origin >= 0
    return way.received.packet[found], take_rows(way.sent, way.origin[found])


def _index_by_number(packet: Counts, values: npt.NDArray[Any], size: int, nothing: int) -> Ints:
    cells = np.full(size, nothing, dtype=np.int64)
    cells[packet] = values
    return cells


def _describe_way(crossing: Crossing, missing: Losses) -> Way:
    sent = crossing.sent
    delay = crossing.delay[crossing.origin >= 0]
    return Way(
        delay_ns=make_quantiles(quantiles_of(delay)) or Quantiles(0, 0, 0, 0, 0, 0, 0),
        packets=len(sent),
        lost_packets=len(missing.lost),
        lost=tuple(
            LostPacket(int(sent.connection[row]), int(sent.packet[row]), int(sent.time_ns[row]), int(sent.length[row]))
            for row in missing.lost[np.argsort(sent.packet[missing.lost])][:LISTED]
        ),
        not_recorded_packets=len(missing.not_recorded),
        not_seen_sent_packets=len(missing.unsent),
        retransmissions=len(missing.retransmissions),
        needless_retransmissions=int(missing.needless.sum()),
    )


def _describe_connections(met: RelatedCaptures) -> Iterator[EndsConnection]:
    up, down = (_group_by_connection(met.up, met.up_losses), _group_by_connection(met.down, met.down_losses))
    for pair in met.shared:
        mine, other = (down, up) if met.turned[pair.first] else (up, down)
        yield _describe_connection(
            met.server.tables, pair, mine.get(pair.first, _NOTHING), other.get(pair.first, _NOTHING)
        )


class _OneWay(Struct, frozen=True):
    """Delays and losses of one direction of one connection."""

    delay: Quantiles | None
    lost: int


_NOTHING = _OneWay(None, 0)


def _group_by_connection(crossing: Crossing, missing: Losses) -> dict[int, _OneWay]:
    found = crossing.origin >= 0
    connection, delay = crossing.received.connection[found], crossing.delay[found]
    order = np.argsort(connection, kind="stable")
    rows, first = np.unique(connection[order], return_index=True)
    lost = np.bincount(crossing.sent.connection[missing.lost], minlength=int(rows.max(initial=0)) + 1)
    pieces = np.split(delay[order], first[1:])
    known = {
        int(row): _OneWay(make_quantiles(quantiles_of(piece)), int(lost[row]))
        for row, piece in zip(rows, pieces, strict=False)
    }
    return {row: _OneWay(None, int(number)) for row, number in enumerate(lost) if number} | known


def _describe_connection(server: Tables, pair: Pair, up: _OneWay, down: _OneWay) -> EndsConnection:
    names = (server.client(pair.second), server.server(pair.second))
    client, other = names[::-1] if pair.swapped else names
    return EndsConnection(
        connection=pair.first,
        server_connection=pair.second,
        client_at_server=client,
        server_at_server=other,
        up_ns=up.delay,
        down_ns=down.delay,
        lost_up=up.lost,
        lost_down=down.lost,
    )


def _describe_methods(client: Recorded, divided: Split) -> Sequence[EndsMethod]:
    rows, none = group_rows(client.tables.rpcs.method), np.zeros(0, dtype=np.int64)
    found = []
    for method in client.tables.methods:
        mine = rows.get(method.number, none)
        found.append(
            EndsMethod(
                method=method.name,
                label=method.label,
                rpcs=len(mine),
                divided_rpcs=int(divided.divided[mine].sum()),
                budget=_name_causes(totals_ns(divided.budgets[mine])),
            )
        )
    return sorted(found, key=lambda m: (-sum(m.budget.values()), m.method or m.label or ""))


def _name_causes(sums: Sequence[int]) -> Mapping[str, int]:
    return {cause: int(ns) for cause, ns in zip(SPLIT_CAUSES, sums, strict=True) if ns}
