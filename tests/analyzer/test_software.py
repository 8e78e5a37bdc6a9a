"""Software that is recognised, and the settings known of it."""

from __future__ import annotations

import re
import sys

import pytest
from judging import changed
from msgspec.structs import replace
from support import REPOSITORY, recorded

from grpcdiag.analyzer import _core
from grpcdiag.analyzer.analysis import analyze
from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.model.finding import Remedy
from grpcdiag.analyzer.software import intents
from grpcdiag.analyzer.software.known import read_all
from grpcdiag.analyzer.software.recognise import C_CORE, recognise
from grpcdiag.analyzer.software.settings import COMMON, list_settings, list_windows
from grpcdiag.analyzer.software.texts import find_meaning
from grpcdiag.analyzer.summary import figures
from grpcdiag.analyzer.tables import NO_AGENT

sys.path.append(str(REPOSITORY / "docs"))
from generating.software import write_texts


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


def list_intents() -> set[str]:
    """All intents, those of both ends apart."""
    words = [value for name, value in vars(intents).items() if name.isupper() and name not in ("CLIENT", "SERVER")]
    return {one for value in words for one in ([value] if isinstance(value, str) else value)}


def test_each_intent_has_a_setting_and_each_setting_a_known_intent() -> None:
    found = [setting for one in read_all().values() for settings in one.settings.values() for setting in settings]
    wanted = [each for one in found for each in ([one.intents] if isinstance(one.intents, str) else one.intents)]
    assert set(wanted) == list_intents()
    assert all(setting.knob for setting in found)


def test_each_fact_names_its_source_and_a_version() -> None:
    """A default of one version is none of another; pages on the web and of services have no version."""
    for one in read_all().values():
        facts = (one.settings, one.timers, one.idle_limits, one.texts, one.goaways, one.faults)
        for source in (source for found in facts for source in found):
            assert re.search(r"\d|https://|Guide|backend services|ethtool", source), (one.name, source)
        assert any(facts), one.name


def test_one_source_is_read_in_one_version() -> None:
    versions: dict[str, set[str]] = {}
    for one in read_all().values():
        for source in {**one.settings, **one.timers, **one.texts, **one.goaways}:
            place, comma, version = source.partition(";")[0].rpartition(", ")
            versions.setdefault(place, set()).update([version] if comma else [])
    assert {place for place, found in versions.items() if len(found) > 1} == {"configuration manual"}  # HAProxy's


def test_a_setting_has_one_default() -> None:
    for one in read_all().values():
        defaults: dict[str, set[str]] = {}
        for setting in (setting for settings in one.settings.values() for setting in settings if setting.default):
            defaults.setdefault(setting.knob, set()).add(setting.default)
        assert [knob for knob, found in defaults.items() if len(found) > 1] == []


def test_common_software_is_known_and_listed_by_name() -> None:
    assert set(COMMON) <= set(read_all())
    assert sorted(COMMON, key=str.lower) == list(COMMON)


def test_settings_of_the_software_that_was_seen_come_first() -> None:
    first = list_windows(intents.STREAM_LIMIT, "nginx/1.22.1", 1)[0]
    assert (first.implementation, first.knob) == ("nginx", "http2_max_concurrent_streams n")
    seen = list_windows(intents.STREAM_WINDOW, "grpc-java-okhttp/1.68.1", 0)
    assert [remedy.implementation for remedy in seen] == ["grpc-java-okhttp", "envoy"]
    unknown = list_windows(intents.STREAM_WINDOW, None, 0)
    assert [remedy.implementation for remedy in unknown] == ["any gRPC implementation", *COMMON]


def test_software_without_a_known_setting_is_named() -> None:
    assert list_windows(intents.STREAM_LIMIT, "caddy", 1)[0].knob == "no setting is known"
    found = list_settings(intents.ROUND_ROBIN, "nginx")
    assert [remedy.implementation for remedy in found] == ["nginx", C_CORE, "grpc-go", "grpc-java", "grpc-js"]
    general = Remedy("any gRPC implementation", "a", "b")
    assert list_settings(intents.ROUND_ROBIN, "nginx", general=(general,))[0] == general


def test_another_library_is_not_taken_for_one_whose_name_it_begins_with() -> None:
    assert list_settings(intents.SECOND_CHANNEL, recognise("grpc-go-connect/1.21.1"))[0].implementation == "connect-go"
    assert list_settings(intents.SECOND_CHANNEL, recognise("grpc-go/1.85.0"))[0].implementation == "grpc-go"


def test_the_core_keeps_the_texts_that_are_known() -> None:
    """`docs/generate.py` writes the core's list from the same files."""
    core = (REPOSITORY / "analyzer" / "core" / "src" / "grpc" / "texts_of_software.rs").read_text()
    assert core == write_texts()


@pytest.mark.parametrize(
    ("text", "software"),
    [
        ("message size 200008 is larger than configured readMaxBytes 100000", "connect-es"),
        ("message size 200008 is larger than configured max 100000", "connect-go"),
        ("grpc: received message larger than max (5000 vs. 4096)", "grpc-go"),
        ("grpc: received message larger than max (bob)", None),
        ("upstream connect error or disconnect/reset before headers. reset reason: overflow, bob", "envoy"),
        ("Method not found!", None),
    ],
)
def test_a_text_tells_whose_it_is(text: str, software: str | None) -> None:
    found = find_meaning(text)
    assert (found.software if found else None) == software


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
