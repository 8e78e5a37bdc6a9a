"""Write the first sentence of the verdict if most of the calls' time is not on the wire."""

from msgspec.structs import replace

from ..model.analysis import Analysis, Verdict
from ..model.client import BACKOFF, DELIVERY, QUEUE, ClientFacts, describe_queue
from ..model.text import count, duration

_PLACES = {
    QUEUE: "before HEADERS leave",
    BACKOFF: "between the attempts of retried calls",
    DELIVERY: "in the client after the last byte arrived",
}
_PLACES_ELSEWHERE = _PLACES | {
    QUEUE: "before HEADERS reach the capture point",
    DELIVERY: "after the last byte passed the capture point",
}
_MOST = 0.5
"""Least share of a queue in the time before HEADERS to explain it, and of calls with an RPC for a record to be of this
capture (heuristic: the majority)."""


def lead_verdict(analysis: Analysis, client: ClientFacts) -> Verdict:
    """Begin the verdict with where the calls' time is, if its largest part is not on the wire."""
    said = [text for text in (_describe_largest(client), _describe_never(client)) if text]
    return replace(analysis.verdict, text=" ".join([*said, analysis.verdict.text]))


def _describe_largest(client: ClientFacts) -> str:
    if client.on_wire < _MOST * (client.calls - client.never_on_wire) and not client.joined.exact:
        return ""
    own = {cause: client.budget.get(cause, 0) for cause in _PLACES}
    largest = max(own, key=lambda cause: own[cause])
    whole = sum(client.budget.values())
    if own[largest] == 0 or own[largest] < max(whole - sum(own.values()), *own.values()):
        return ""
    place = (_PLACES if client.at_client else _PLACES_ELSEWHERE)[largest]
    why = _explain(client) if largest == QUEUE else ""
    part = {QUEUE: client.before_wire_ns, DELIVERY: client.after_wire_ns}.get(largest)
    if part and client.call_ns and part.p50 >= _MOST * client.call_ns.p50:
        return (
            f"Of {duration(client.call_ns.p50)} (p50) that the client measured, {duration(part.p50)} pass {place}{why}."
        )
    return f"Of {duration(whole)} that the client's calls took, {duration(own[largest])} pass {place}{why}."


def _explain(client: ClientFacts) -> str:
    """Describe the queue in which most of the time before HEADERS passes."""
    if not client.queues or client.queues[0].waiting_ns < _MOST * client.budget.get(QUEUE, 0):
        return ", and the packets do not show why"
    return f": {describe_queue(client.queues[0])}"


def _describe_never(client: ClientFacts) -> str:
    if not client.never_on_wire:
        return ""
    return f"{client.never_on_wire:,} of {count(client.calls, 'call')} never reached the wire."
