"""What a recording's sidecar says of the host's clock."""

from __future__ import annotations

import sys

import pytest

from grpcdiag.capture import clock, machine

TRACKING = (
    "C0A80001,192.168.0.1,3,1795228031.5,{offset},-0.000001,0.00001,-12.5,-0.001,0.02,"
    "{delay},{dispersion},64.2,{leap}\n"
)


def tracking(offset: str = "-0.000030", delay: str = "0.0004", dispersion: str = "0.0001", leap: str = "Normal") -> str:
    return TRACKING.format(offset=offset, delay=delay, dispersion=dispersion, leap=leap)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="adjtimex(2) is Linux's")
def test_the_kernel_knows_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock.tools, "output", lambda *_: None)
    found = clock.describe_clock()
    assert found is not None and found["chrony"] is None
    assert isinstance(found["synchronised"], bool)
    assert found["max_error_ns"] >= 0 and found["estimated_error_ns"] >= 0
    assert abs(found["offset_ns"]) <= 1_000_000_000


def test_chrony_says_how_wrong_the_clock_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock.tools, "output", lambda *_: tracking())
    found = clock.describe_clock()
    assert found is not None
    assert found["chrony"] == {"synchronised": True, "max_error_ns": 330_000, "offset_ns": -30_000}


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (tracking(leap="Not synchronised"), {"synchronised": False, "max_error_ns": 330_000, "offset_ns": -30_000}),
        (tracking(offset="nan"), None),
        (tracking(delay="inf"), None),
        (tracking(delay="soon"), None),
        ("506 Cannot talk to daemon\n", None),
        ("", None),
        (None, None),
    ],
)
def test_other_answers_of_chrony(text: str | None, known: object) -> None:
    assert clock._parse_tracking(text) == known


def test_one_run_of_the_kernel_has_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    first = clock.identify_boot()
    assert first is not None and first == clock.identify_boot()
    boot = clock.tools.read(clock._BOOT_ID)
    assert boot and boot not in first
    monkeypatch.setattr(clock.tools, "read", lambda _: "another")
    assert clock.identify_boot() not in (first, None)
    monkeypatch.setattr(clock.tools, "read", lambda _: None)
    assert clock.identify_boot() is None


def test_the_sidecar_has_both() -> None:
    host = machine.snapshot("lo", ())
    assert host["boot"] == clock.identify_boot()
    assert set(host["clock"]) == {"synchronised", "max_error_ns", "estimated_error_ns", "offset_ns", "chrony"}


@pytest.mark.parametrize(
    ("text", "waited"),
    [("some avg10=9.36 avg60=7.7 avg300=8.2 total=391\nfull avg10=0.00 total=7", 391), ("", None), (None, None)],
)
def test_how_long_threads_waited_for_processors(
    text: str | None, waited: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock.tools, "read", {"/proc/pressure/cpu": text}.get)
    found = machine.cpu_pressure()
    assert (found and found["waited_us"]) == waited
