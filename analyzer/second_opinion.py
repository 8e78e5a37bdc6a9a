from __future__ import annotations
from dataclasses import dataclass, field
from typing import NamedTuple
class Packet(NamedTuple):
    packet: int
    connection: int
    sender: str
    receiver: str
    seq: int
    length: int
    flags: int
    notes: frozenset[str]
    sent_at: int | None
class Frame(NamedTuple):
    packet: int
    connection: int
    kind: int
    flags: int
    stream: int
    length: int
class Status(NamedTuple):
    packet: int
    connection: int
    stream: int
    value: str
@dataclass
class Account:
    packets: list[Packet] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
