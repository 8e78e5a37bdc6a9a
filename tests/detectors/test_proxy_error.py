"""`proxy-error`: an HTTP status instead of a response of gRPC, who sent it, and what gRPC makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from judging import changed, must, played, tables_of_scene, told
from msgspec.structs import replace
from support import recorded

from grpcdiag.analyzer.decode.decode import decode
from grpcdiag.analyzer.detectors import proxy_error
from grpcdiag.fixtures.synthetic.scene import opened
from grpcdiag.fixtures.synthetic.scenes_proxies import refused
from grpcdiag.fixtures.synthetic.words import MS

FIRES_ON = [
    "wild/nginx-http-statuses",
    "wild/nginx-readtimeout",
    "wild/nginx-body-limit",
    "wild/nghttpx-backendkill",
    "wild/haproxy-504",
    "wild/haproxy-backend-down",
]
QUIET_ON = [
    "wild/haproxy-ok",
    "wild/haproxy-streamtimeout",
    "wild/nghttpx",
    "wild/connect-go-connect-errors",
    "rpc-errors",
]


def test_statuses_and_who_sent_them() -> None:
    file = recorded("wild/nginx-http-statuses.pcap.zst")
    tables = decode([file])
    found = must(proxy_error, tables)
    assert not any("length-prefixed" in kind for kind in tables.problem_kinds)
    assert {name: n for name, n in found.metrics.items() if name.startswith("http_")} == {
        "http_503_rpcs": 3,
        "http_401_rpcs": 3,
        "http_302_rpcs": 3,
    }
    assert (found.severity, found.metrics["answered_by"]) == ("critical", "nginx/1.22.1")
    assert "UNAVAILABLE, UNAUTHENTICATED, UNKNOWN" in found.explanation


def test_a_client_that_resets_before_the_page_got_the_status_all_the_same() -> None:
    found = must(proxy_error, decode([recorded("wild/nginx-readtimeout.pcap.zst")]))
    assert (found.metrics["http_504_rpcs"], found.metrics["refused_rpcs"]) == (40, 40)
    assert [remedy.knob for remedy in found.remedies][1:] == [
        "grpc_read_timeout",
        "grpc_send_timeout",
        "grpc_connect_timeout",
    ]


@pytest.mark.parametrize(
    ("name", "status", "calls", "by", "setting"),
    [
        ("nginx-body-limit", 413, 8, "nginx/1.22.1", "client_max_body_size"),
        ("haproxy-504", 504, 6, "haproxy (by its SETTINGS)", "timeout server"),
        ("haproxy-backend-down", 503, 8, "haproxy (by its SETTINGS)", None),
    ],
)
def test_what_the_software_that_answered_has_to_do_with_it(
    name: str, status: int, calls: int, by: str, setting: str | None
) -> None:
    """All calls of the client ended so by its own report; HAProxy's pages do not name it."""
    file = recorded(f"wild/{name}.pcap.zst")
    found = must(proxy_error, decode([file]))
    assert (found.metrics[f"http_{status}_rpcs"], found.metrics["answered_by"]) == (calls, by)
    assert [remedy.knob for remedy in found.remedies][1:] == ([setting] if setting else [])


@pytest.mark.parametrize(
    ("server", "status", "settings"),
    [
        ("istio-envoy", 503, {"health checks and circuit_breakers of the cluster"}),
        (
            "istio-envoy",
            504,
            {"stream_idle_timeout", "route.timeout", "max_stream_duration", "VirtualService http.timeout"},
        ),
        ("nginx/1.27", 408, {"client_body_timeout"}),
        ("somebody/1.0", 504, set()),
    ],
)
def test_settings_are_those_of_the_software_that_names_itself(server: str, status: int, settings: set[str]) -> None:
    tables = replace(tables_of_scene("proxies-login-page"), agents=(server,))
    tables = changed(tables, "failures", answered_by=np.zeros(len(tables.failures.rpc)))
    tables = changed(tables, "rpcs", http_status=np.full(len(tables.rpcs.stream), status))
    assert {remedy.knob for remedy in must(proxy_error, tables).remedies[1:]} == settings


def test_software_that_does_not_name_itself_is_not_named() -> None:
    found = must(proxy_error, tables_of_scene("proxies-login-page"))
    assert found.metrics["answered_by"] == "unknown"
    assert "do not name the software" in found.explanation
    assert "server 10." in found.title


@pytest.mark.parametrize(
    ("refusals", "calls", "severity"),
    [(2, 10, "info"), (3, 10, "critical"), (3, 31, "warning"), (3, 30, "critical"), (3, 301, "info")],
)
def test_severity_follows_the_share_of_rpcs(tmp_path: Path, refusals: int, calls: int, severity: str) -> None:
    statuses = [502] * refusals + [0] * (calls - refusals)
    assert must(proxy_error, played(refused(statuses), tmp_path)).severity == severity


@pytest.mark.parametrize(("statuses", "most"), [([503, 503, 502], True), ([503, 503, 502, 502], False)])
def test_only_a_majority_is_most(tmp_path: Path, statuses: list[int], most: bool) -> None:
    found = must(proxy_error, played(refused(statuses), tmp_path))
    assert ("most 503" in found.title) == most
    assert found.verdict.endswith(
        "503 means that it was overloaded or out of service; from a proxy, that no backend was there or answered."
    )


def test_a_page_is_not_needed(tmp_path: Path) -> None:
    found = must(proxy_error, played(refused([503] * 3, page=b""), tmp_path))
    assert found.metrics["http_503_rpcs"] == 3


def test_a_status_of_the_server_is_not_the_proxys() -> None:
    assert told(proxy_error, tables_of_scene("proxies-own-status")) is None


@pytest.mark.parametrize(
    ("status", "server", "first", "others"),
    [
        (413, b"Caddy", "request_body { max_size n }", ()),
        (413, b"", "request_body { max_size n }", ("client_max_body_size",)),
        (431, b"nginx/1.27", "large_client_header_buffers", ()),
        (431, b"tonic/0.14", "Server::builder().http2_max_header_list_size(n)", ()),
        (431, b"somebody", None, ()),
    ],
)
def test_a_limit_is_named_for_the_software_seen(
    status: int, server: bytes, first: str | None, others: tuple[str, ...], tmp_path: Path
) -> None:
    conv = opened()
    for _ in range(3):
        conv.start_rpc("/demo.Echo/Say", end_stream=True).refuse(status, server=server)
        conv.advance(MS)
    knobs = [remedy.knob for remedy in must(proxy_error, played(conv, tmp_path)).remedies][1:]
    assert knobs == [*([first] if first else []), *others]


def test_tonic_is_recognised_by_its_settings(tmp_path: Path) -> None:
    conv = opened()
    conv.start_rpc("/demo.Echo/Say", end_stream=True).refuse(431)
    tables = played(conv, tmp_path)
    named = replace(tables, agents=(*tables.agents, "tonic/0.14"))
    named = changed(named, "connections", server_agent=[len(tables.agents)])
    assert [remedy.implementation for remedy in must(proxy_error, named).remedies] == ["application", "tonic"]
    unknown = [remedy.implementation for remedy in must(proxy_error, tables).remedies]
    assert unknown[1] == "application" and {"tonic", "nginx", "grpc-go"} <= set(unknown)
