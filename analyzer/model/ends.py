"""What two captures of the same connections say together: delays each way, losses, clocks."""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from .. import _core
from ..tables.durations import Count
from .quantiles import Quantiles

SplitBudget = Annotated[
    Mapping[str, Annotated[int, Meta(ge=1)]],
    Meta(extra_json_schema={"propertyNames": {"enum": [*_core.CAUSES, "network_up", "network_down"]}}),
]
"""Nanoseconds by cause with both ends known: `network` is what could not be divided."""


class LostPacket(Struct, frozen=True):
    """A packet that its sender's capture has and the receiver's has not."""

    connection: Count
    """Row of the connection in the client's capture."""
    packet: Count
    """Number in the capture of the end that sent it."""
    time_ns: int
    """When it was sent, by that capture's clock."""
    payload_bytes: Count


class Way(Struct, frozen=True):
    """One way between two capture points."""

    delay_ns: Quantiles
    """Time on the way."""
    packets: Count
    """Packets sent that way."""
    lost_packets: Count
    """Packets sent that way that were lost between the capture points."""
    lost: tuple[LostPacket, ...]
    """The first lost packets."""
    not_recorded_packets: Count
    """Packets with data that arrived, for they were acknowledged, and that the receiver's capture lacks."""
    not_seen_sent_packets: Count
    """Packets received that the sender's capture lacks."""
    retransmissions: Count
    """Packets with bytes sent before."""
    needless_retransmissions: Count
    """Retransmissions of bytes that had arrived, or still did."""


class EndsCapture(Struct, frozen=True):
    """One of the two captures."""

    files: tuple[str, ...]
    other_connections: Count
    """HTTP/2 and TLS connections that the other capture lacks."""


class EndsConnection(Struct, frozen=True):
    """A connection that both captures have."""

    connection: int
    """Row in the client's capture, which the report shows."""
    server_connection: int
    """Row in the server's capture."""
    client_at_server: str
    """The client as the server's capture has it: another address behind address translation."""
    server_at_server: str
    """The server as the server's capture has it."""
    up_ns: Quantiles | None
    """Time on the way of the client's packets."""
    down_ns: Quantiles | None
    """Time on the way of the server's packets."""
    lost_up: int
    """Packets of the client that were lost."""
    lost_down: int
    """Packets of the server that were lost."""


class EndsMethod(Struct, frozen=True):
    """RPC time of a method with both ends known."""

    method: str | None
    label: str | None
    """What tells a method without a name apart, as in `MethodFacts`."""
    rpcs: Count
    divided_rpcs: Count
    """RPCs whose network time is divided between the two ways."""
    budget: SplitBudget


ClockSource = Literal["symmetric_path", "synchronised", "same_host"]


class ClockFacts(Struct, frozen=True):
    """The server's clock against the client's."""

    since_time_ns: int
    """Time of the client's clock at which the offset is given."""
    offset_ns: int
    """The server's clock less the client's."""
    uncertainty_ns: int
    """By how much more or less it may be, as far as packets show."""
    drift_ppb: int | None
    """Parts per billion that the server's clock runs faster; None when it cannot be told from none."""
    drift_low_ppb: int
    drift_high_ppb: int
    """Bounds of the drift, parts per billion: `drift_low_ppb` and this."""
    source: ClockSource
    """Where the offset is from: the assumption that the fastest packets take as long on both ways; `--clock
    synchronised`; or both recordings were made on one host."""
    hosts_error_ns: Count | None
    """By how much both hosts' clocks were wrong at most, added up, as the sidecars of both captures say; None if they
    do not, or if one clock was not synchronised."""


class Ends(Struct, frozen=True):
    """What two captures of the same connections say together."""

    client: EndsCapture
    """The capture nearer to the client, which the rest of the report is about."""
    server: EndsCapture
    """The capture nearer to the server."""
    clock: ClockFacts
    matched_packets: int
    """Packets found in both captures."""
    symmetry_assumed: bool
    """Whether one-way delays, `network_up` and `network_down` depend on the assumption that the fastest packets take as
    long on both ways."""
    up: Way
    down: Way
    budget: SplitBudget
    """RPC time by cause; `network_up` and `network_down` divide what `network` is without both ends."""
    methods: tuple[EndsMethod, ...]
    connections: tuple[EndsConnection, ...]
