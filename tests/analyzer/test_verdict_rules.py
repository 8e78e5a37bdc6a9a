"""Rules of the verdict: each applies, yields to the one before it, and to none after it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from grpcdiag.analyzer.detectors import ABOUTS
from grpcdiag.analyzer.model.finding import Evidence, Finding, Scope
from grpcdiag.analyzer.summary.verdict_rules import RULES, Known, choose

FREE: dict[str, Any] = {"severity": "info", "lost_ns": None, "share": None}


def finding(identity: str, **changes: Any) -> Finding:
    given: dict[str, Any] = {
        "id": identity,
        "title": identity,
        "severity": "warning",
        "confidence": "high",
        "scope": Scope((0,), ()),
        "lost_ns": 1_000,
        "share": 0.05,
        "metrics": {},
        "evidence": (Evidence(1, 0, "a packet"),),
        "explanation": "",
        "remedies": (),
        "references": (),
        "verdict": f"{identity} it is.",
    }
    return Finding(**{**given, **changes})


QUALITY = finding("capture-quality", lost_ns=None, share=None)
DISORDER = finding("capture-quality", lost_ns=None, share=None, metrics={"unsorted_packets": 20})
SMALL, LARGE = finding("loss-recovery"), finding("loss-recovery", share=0.09)
PLACE = finding("server-latency", metrics={"server_time_share": 0.9}, **FREE)
LARGER = finding("initial-congestion-window", severity="info", share=0.08)
PATTERN = finding("rpc-errors", metrics={"failed_share": 0.8}, **FREE)
HOP = SimpleNamespace(held_ns=10_000_000, calls=1, verdict="The proxy held 1 call.")


def list_worlds() -> Iterator[dict[str, Any]]:
    """For each rule what is known; each world lacks what the rule before needs, and nothing of what came later.

    Most of the time cannot be lacking and be transmission, so the rules about transmission apply from the third on.
    """
    world: dict[str, Any] = {
        "findings": (DISORDER, SMALL, PLACE, LARGER, PATTERN),
        "budget": {"proxy": 100, "capture_gap": 700, "loss_recovery": 150, "server": 50},
        "totals": SimpleNamespace(rpcs=10, rpcs_without_known_end=2),
        "reason": "There is no RPC.",
        "hops": (HOP,),
    }
    transmission = {"transmission": 600, "capture_gap": 200, "loss_recovery": 150, "server": 50}
    lacks: list[dict[str, Any]] = [
        {},
        {"hops": ()},
        {"findings": (QUALITY, SMALL, PLACE, LARGER, PATTERN)},
        {"findings": (SMALL, PLACE, LARGER, PATTERN), "budget": transmission},
        {"findings": (SMALL, LARGER, PATTERN)},
        {"findings": (LARGE, LARGER, PATTERN)},
        {"findings": (finding("loss-recovery", severity="critical"), LARGER, PATTERN)},
        {"findings": (LARGER, PATTERN)},
        {"reason": ""},
        {"totals": SimpleNamespace(rpcs=10, rpcs_without_known_end=1)},
        {"budget": {"transmission": 600, "capture_gap": 100, "loss_recovery": 150, "server": 150}},
        {"findings": (LARGER,)},
        {"findings": ()},
        {"budget": {"transmission": 600, "loss_recovery": 100, "server": 300}},
        {"budget": {"transmission": 499, "loss_recovery": 100, "server": 401}},
    ]
    for lacked in lacks:
        world = {**world, **lacked}
        yield dict(world)


WORLDS = [Known(abouts=ABOUTS, **world) for world in list_worlds()]
TEXTS = [
    "The proxy held 1 call. Less important: loss-recovery costs 5%.",
    "capture-quality it is.",
    "capture-quality it is. Less important: loss-recovery costs 5%.",
    "server-latency it is. Less important: loss-recovery costs 5%.",
    "initial-congestion-window it is. Less important: loss-recovery costs 5%.",
    "60% of the RPC time is transmission: send fewer bytes (compression), or use a faster path. Less important: "
    "loss-recovery costs 9%.",
    "loss-recovery it is.",
    "There is no RPC.",
    "No cause was found, but 2 of 10 RPCs have no known end in this capture: see its quality.",
    "No cause was found, but 20% of the RPC time is unexplained in this capture: see its quality and the time by "
    "cause.",
    "rpc-errors it is.",
    "No serious problem was found. Largest cost: initial-congestion-window it is.",
    "No cause was found, but 15% of the RPC time is loss recovery: see the time by cause.",
    "No problem was found, but 60% of the RPC time is transmission: send fewer bytes (compression), or use a faster "
    "path.",
    "No transport problem was found in this capture.",
]
each_rule = pytest.mark.parametrize("place", [pytest.param(n, id=rule.__name__) for n, rule in enumerate(RULES)])


def apply(known: Known) -> list[str]:
    """Name the rules that apply."""
    return [rule.__name__ for rule in RULES if rule(known)]


def test_each_rule_has_a_world() -> None:
    assert len(WORLDS) == len(TEXTS) == len(RULES)


@each_rule
def test_a_rule_applies_and_writes_the_verdict(place: int) -> None:
    verdict = RULES[place](WORLDS[place])
    assert verdict is not None
    assert verdict.text == TEXTS[place]
    assert choose(WORLDS[place]) == verdict


@pytest.mark.parametrize("place", [pytest.param(n, id=rule.__name__) for n, rule in enumerate(RULES) if n])
def test_a_rule_yields_to_the_one_before(place: int) -> None:
    before = WORLDS[place - 1]
    assert RULES[place](before)
    assert choose(before).text == TEXTS[place - 1]


@each_rule
def test_a_rule_yields_to_none_after_and_does_not_apply_without_its_cause(place: int) -> None:
    later = [rule.__name__ for rule in RULES[place:]]
    if place < 3:
        later = [name for name in later if "transmission" not in name]
    assert apply(WORLDS[place]) == later
