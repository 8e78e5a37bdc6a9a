"""Timers of proxies and servers that end streams: setting, default, source.

Defaults are those of the versions named. They are shown as what to look at, never as a proof.
"""

from collections.abc import Sequence

from msgspec import Struct

from ..model.finding import Remedy
from .recognise import C_CORE

MS = 1_000_000
S = 1_000 * MS

SILENCE, DURATION, CONNECT = "silence", "duration", "connect"
"""What a timer measures: time without a byte of the stream, the stream's age, or the wait for a backend's connection or
its first answer, which ends no stream that had a response."""


class Timer(Struct, frozen=True):
    """A setting that ends streams."""

    software: str
    setting: str
    measures: str
    default_ns: int | None
    """None where it is off, or has no default."""
    source: str
    """Where the default stands, with its version."""
    status: int = 504
    """The HTTP status with which it answers an RPC without a response, 0 for none."""
    reset_code: int | None = None
    """The error code with which it resets a stream that has a response, None where that is not known."""


_PROTOCOL_ERROR, _INTERNAL_ERROR = 1, 2
"""What nginx sends after a timer of its client's side, and of its backend's (ngx_http_v2_close_stream)."""

TIMERS = (
    Timer("nginx", "grpc_read_timeout", SILENCE, 60 * S, "ngx_http_grpc_module, nginx 1.27", 504, _INTERNAL_ERROR),
    Timer("nginx", "grpc_send_timeout", SILENCE, 60 * S, "ngx_http_grpc_module, nginx 1.27", 504, _INTERNAL_ERROR),
    Timer("nginx", "client_body_timeout", SILENCE, 60 * S, "ngx_http_core_module, nginx 1.27", 408, _PROTOCOL_ERROR),
    Timer("nginx", "send_timeout", SILENCE, 60 * S, "ngx_http_core_module, nginx 1.27", 0, _PROTOCOL_ERROR),
    Timer("nginx", "grpc_connect_timeout", CONNECT, 60 * S, "ngx_http_grpc_module, nginx 1.27"),
    Timer("haproxy", "timeout server", SILENCE, None, "configuration manual, HAProxy 3.0; often 50s or 1m"),
    Timer("haproxy", "timeout client", SILENCE, None, "configuration manual, HAProxy 3.0; often 50s or 1m", 408),
    Timer("haproxy", "timeout tunnel", SILENCE, None, "configuration manual, HAProxy 3.0", 0),
    Timer("envoy", "stream_idle_timeout", SILENCE, 300 * S, "http_connection_manager.proto, Envoy 1.31"),
    Timer("envoy", "route.timeout", DURATION, 15 * S, "route_components.proto, Envoy 1.31"),
    Timer("envoy", "max_stream_duration", DURATION, None, "protocol.proto, Envoy 1.31"),
    Timer("envoy", "VirtualService http.timeout", DURATION, None, "VirtualService, Istio 1.22; off unless set"),
    Timer("nghttpx", "--backend-read-timeout", SILENCE, 60 * S, "nghttpx(1), nghttp2 1.62"),
    Timer("caddy", "reverse_proxy transport http response_header_timeout", CONNECT, None, "reverse_proxy, Caddy 2.11"),
    Timer(
        "caddy",
        "reverse_proxy transport http read_timeout",
        SILENCE,
        None,
        "reverse_proxy, Caddy 2.8",
        504,
        _INTERNAL_ERROR,
    ),
    Timer("caddy", "servers timeouts write", DURATION, None, "global options, Caddy 2.11", 0, _INTERNAL_ERROR),
    Timer("Apache", "ProxyTimeout", SILENCE, 60 * S, "mod_proxy, Apache 2.4; that of Timeout by default", 503),
    Timer("h2o", "proxy.timeout.io", SILENCE, 30 * S, "Proxy Directives, H2O 2.2", 502),
    Timer("Pingora", "HttpPeer options.read_timeout", SILENCE, None, "pingora-core upstreams::peer, Pingora 0.6", 502),
    Timer("traefik", "respondingTimeouts.readTimeout", DURATION, 60 * S, "EntryPoints, Traefik 3.1", 0),
    Timer("Go net/http", "http.Server.WriteTimeout", DURATION, None, "net/http, Go 1.26; off unless set", 0),
    Timer("AWS ALB", "idle_timeout.timeout_seconds", SILENCE, 60 * S, "Application Load Balancers, User Guide"),
    Timer(
        "GCP load balancer", "backend service timeoutSec", DURATION, 30 * S, "Cloud Load Balancing, backend services"
    ),
)
"""All timers known, those of one product together."""


_NEAR = 0.10
"""How far a measured time may be from a default to be compared with it (heuristic: a round trip and the wheel)."""


def list_timers(
    measures: str, time_ns: float, software: str | None, reset_code: int | None = None
) -> tuple[Remedy, ...]:
    """List the timers of the software that was seen; without any, those whose default is near the time, or all.

    Timers that reset streams with another error code than `reset_code` are left out.
    """
    mine = [timer for timer in TIMERS if timer.measures == measures]
    alike = [timer for timer in mine if None in (reset_code, timer.reset_code) or timer.reset_code == reset_code]
    return _choose(alike, time_ns, software)


def list_answering_timers(status: int, time_ns: float, software: str | None) -> tuple[Remedy, ...]:
    """List the timers that answer with an HTTP status in the same way."""
    return _choose([timer for timer in TIMERS if timer.status == status], time_ns, software)


def list_statuses(software: str | None) -> list[int]:
    """List the HTTP statuses with which timers of one software answer."""
    return [timer.status for timer in TIMERS if timer.software == software]


def _choose(mine: Sequence[Timer], time_ns: float, software: str | None) -> tuple[Remedy, ...]:
    own = [timer for timer in mine if software and timer.software == software]
    near = [t for t in mine if t.default_ns is not None and abs(time_ns - t.default_ns) <= _NEAR * t.default_ns]
    return tuple(Remedy(t.software, t.setting, _describe(t)) for t in own or near or mine)


def _describe(timer: Timer) -> str:
    default = "no default" if timer.default_ns is None else f"{timer.default_ns / S:g} s by default"
    ends = "after that time without a byte of it" if timer.measures == SILENCE else "that long after its request"
    return f"ends a stream {ends}; {default} ({timer.source}); a longer time keeps dead streams open longer"


class IdleLimit(Struct, frozen=True):
    """For how long a device or service remembers an idle TCP connection."""

    device: str
    limit_ns: int
    source: str


IDLE_LIMITS = (
    IdleLimit("AWS ALB", 60 * S, "Application Load Balancers, User Guide: connection idle timeout"),
    IdleLimit("Pekko HTTP", 60 * S, "reference.conf: pekko.http.server.idle-timeout, Pekko HTTP 1.1"),
    IdleLimit("nginx", 75 * S, "ngx_http_core_module: keepalive_timeout, nginx 1.27"),
    IdleLimit("Azure load balancer, NAT gateway", 240 * S, "Azure Load Balancer, TCP reset and idle: 4 min"),
    IdleLimit("AWS NLB, NAT gateway", 350 * S, "Network Load Balancers and NAT gateways, User Guides"),
    IdleLimit("GCP firewall", 600 * S, "VPC firewall rules, connection tracking: 10 min"),
    IdleLimit("IPVS (kube-proxy)", 900 * S, "ipvsadm --set, timeout of TCP: 15 min"),
    IdleLimit("Envoy, Istio", 3_600 * S, "protocol.proto, idle_timeout, Envoy 1.31: 1 h"),
)
"""Default limits, the shortest first."""


def list_idle_limits(silence_ns: int) -> tuple[Remedy, ...]:
    """List the default limits that a silence has passed, the longest first; a generic hint where it passed none."""
    passed = [limit for limit in IDLE_LIMITS if limit.limit_ns <= silence_ns][::-1]
    note = "forgets or closes a connection after {:g} s without a packet by default ({})"
    found = tuple(Remedy(x.device, "idle timeout", note.format(x.limit_ns / S, x.source)) for x in passed)
    hint = "all known defaults are longer: look for a changed one in devices between client and server"
    return found or (Remedy("network", "idle timeouts of proxies, NAT and firewalls", hint),)


_IDLE_TIMEOUTS = {
    "envoy": "idle_timeout",
    "nginx": "keepalive_timeout",
    "haproxy": "timeout http-keep-alive",
    "caddy": "timeouts idle",
    "grpc-go": "keepalive.ServerParameters{MaxConnectionIdle: ...}",
    "grpc-java": "NettyServerBuilder.maxConnectionIdle(...)",
    C_CORE: "GRPC_ARG_MAX_CONNECTION_IDLE_MS",
    "Hypercorn": "keep_alive_timeout",
    "Pekko HTTP": "pekko.http.server.idle-timeout",
}
"""The settings by which servers close idle connections, by software."""


def make_idle_timeout(software: str | None) -> Remedy:
    """Name the idle timeout of the server's software; of all that are known where it is unknown."""
    longer = "the idle timeout of the server or proxy: longer than the time between calls"
    if software in _IDLE_TIMEOUTS:
        return Remedy(software, _IDLE_TIMEOUTS[software], longer)
    if software is not None:
        return Remedy("application", longer, f"no setting of {software} is known here")
    return Remedy("application", longer, ", ".join(f"{setting} ({name})" for name, setting in _IDLE_TIMEOUTS.items()))
