"""Software that is recognised, and the settings known of it."""

from __future__ import annotations

import pytest
from judging import changed
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.finding import Remedy
from grpcdiag.analyzer.software import windows_and_limits
from grpcdiag.analyzer.software.recognise import C_CORE, SOFTWARE, recognise, sort_by_implementation
from grpcdiag.analyzer.software.windows_and_limits import STREAM_LIMIT, STREAM_WINDOW, list_software_settings
from grpcdiag.analyzer.summary import figures
from grpcdiag.analyzer.tables import NO_AGENT


@pytest.mark.parametrize(
    ("names", "software"),
    [
        (("grpc-go/1.85.0",), "grpc-go"),
        (("grpc-java-netty/1.75.0",), "grpc-java"),
        (("grpc-java-okhttp/1.68.1",), "grpc-java-okhttp"),
        (("grpc-python-grpclib/0.4.9 (linux; cpython/3.11.7)",), "grpclib"),
        (("grpc-python/1.85.1 grpc-c/58.0.0 (linux; chttp2)",), C_CORE),
        (("grpc-go-connect/1.21.1 (go1.26.8)",), "connect-go"),
        (("grpc-node-js/1.14.7",), "grpc-js"),
        (("nginx/1.22.1",), "nginx"),
        ((None, "1.1 envoy"), "envoy"),
        (("tonic (h2)",), "tonic"),
        (("Go net/http (connect-go, Caddy, Traefik)",), "Go net/http"),
        (("grpc-synthetic/1.0",), None),
        (("", None), None),
    ],
)
def test_recognise(names: tuple[str | None, ...], software: str | None) -> None:
    assert recognise(*names) == software


def test_everything_that_the_core_infers_is_recognised() -> None:
    assert [name for name in _core.IMPLEMENTATIONS if name and recognise(name) is None] == []


def test_every_setting_is_of_software_that_is_recognised() -> None:
    """A dead name would never be shown."""
    settings = windows_and_limits.SETTINGS
    software = {name for name, source in settings if source}
    assert set(windows_and_limits.COMMON) <= software <= set(SOFTWARE)
    rows = [(name, *row) for (name, _), rows in settings.items() for row in rows]
    assert all(knob and note for *_, knob, note in rows)
    assert len({(name, sets, ends, knob) for name, sets, ends, knob, _ in rows}) == len(rows)


def test_settings_of_the_software_that_was_seen_come_first() -> None:
    first = list_software_settings(STREAM_LIMIT, "nginx/1.22.1", 1)[0]
    assert (first.implementation, first.knob) == ("nginx", "http2_max_concurrent_streams n")
    assert {r.implementation for r in list_software_settings(STREAM_WINDOW, "grpc-java-okhttp/1.68.1", 0)} == {
        "grpc-java-okhttp",
        "envoy",
    }
    unknown = list_software_settings(STREAM_WINDOW, None, 0)
    assert [remedy.implementation for remedy in unknown] == ["any gRPC implementation", *windows_and_limits.COMMON]
    assert sorted(windows_and_limits.COMMON, key=str.lower) == list(windows_and_limits.COMMON)


def test_software_without_a_known_setting_is_named() -> None:
    assert list_software_settings(STREAM_LIMIT, "caddy", 1)[0].knob == "no setting is known"
    sorted_ = sort_by_implementation([Remedy("grpc-go", "a", "b")], "nginx/1")
    assert [remedy.implementation for remedy in sorted_] == ["nginx", "grpc-go"]
    general = [Remedy("any gRPC implementation", "a", "b")]
    assert list(sort_by_implementation(general, "nginx/1")) == general


@pytest.mark.parametrize(
    ("name", "id_", "knob"),
    [
        ("nginx-mcs4", "max-concurrent-streams", "http2_max_concurrent_streams n"),
        ("okhttp-win64k", "connection-window-stall", "OkHttpChannelBuilder.flowControlWindow(n)"),
        ("nginx-goaway50", "connection-closed-early", "keepalive_requests 100000"),
    ],
)
def test_recorded_captures(name: str, id_: str, knob: str) -> None:
    findings = {finding.id: finding for finding in analyze([recorded(f"wild/{name}.pcap.zst")]).findings}
    assert findings[id_].remedies[0].knob == knob
    if name == "nginx-goaway50":
        assert "12 of 12 connections with GOAWAY after exactly 50 requests each" in findings[id_].explanation


def test_a_client_with_a_name_of_its_own_is_not_taken_for_another() -> None:
    """kitex sends PINGs as grpc-go does; a `user-agent` that is not known says that it is another, too."""
    tables = decode([recorded("wild/kitex-deadline.pcap.zst")])
    assert figures.client_implementation(tables, 0) == ("kitex/v0.16.3", False)
    like_go = changed(tables, "connections", client_hint=[_core.IMPLEMENTATIONS.index("grpc-go")])
    assert figures.client_implementation(replace(like_go, agents=("",) * len(tables.agents)), 0) == (None, False)
    unnamed = changed(like_go, "connections", client_agent=[NO_AGENT])
    assert figures.client_implementation(unnamed, 0) == ("grpc-go", True)
