"""How servers end connections, by software: what they write into a GOAWAY, and the settings."""

from ..model.finding import Remedy
from .recognise import C_CORE

MAX_AGE = "max_age"
"""What grpc-go, grpc-java, grpc-js and C-core write into the GOAWAY of a connection that reached its maximum age."""
_GRACES = {
    "grpc-go": "MaxConnectionAgeGrace",
    "grpc-java": "NettyServerBuilder.maxConnectionAgeGrace",
    "grpc-js": "grpc.max_connection_age_grace_ms",
    C_CORE: "grpc.max_connection_age_grace_ms",
}
"""The time that calls have from then on, by software."""
STOPS = ("graceful_stop", "app_requested", "server_shutdown", "Server shutdown", "Voluntary connection close.")
"""What servers write into GOAWAYs when they are stopped."""
NO_LIMIT = ("max_idle", *STOPS)
"""Texts of GOAWAYs that no limit on requests or age caused."""


def name_grace(software: str | None) -> str:
    """Name the time that calls have from a connection's maximum age on: ` (MaxConnectionAgeGrace)`; perhaps nothing."""
    return f" ({_GRACES[software]})" if software in _GRACES else ""


def list_shutdowns(java: str = "", core: str = "", js: str = "") -> tuple[Remedy, ...]:
    """List how servers are stopped so that they wait for open RPCs, each behind another setting of that software."""
    waits = "server: waits for open RPCs"
    return (
        Remedy("grpc-go", "Server.GracefulStop()", f"{waits}, however long they take"),
        Remedy("grpc-java", f"{java}Server.shutdown(), awaitTermination(...)", f"{waits}, up to that time"),
        Remedy("C-core", f"{core}Server::Shutdown(deadline)", f"{waits}, up to that time"),
        Remedy("grpc-js", f"{js}Server.tryShutdown()", f"{waits}, however long they take"),
        Remedy("Pekko HTTP", "Http.ServerBinding.terminate(hardDeadline)", f"{waits}, up to that time"),
    )


_MORE = "fewer new connections; a leak of memory per connection lives longer"
REMEDIES_REQUESTS = (
    Remedy("nginx", "keepalive_requests 100000", f"1,000 by default (nginx 1.19.10 and later); {_MORE}"),
    Remedy("Hypercorn", "keep_alive_max_requests = n", f"1,000 by default; {_MORE}"),
    Remedy("application", "maximum connection age below the load balancer's limit", "AWS ALB ends at 10,000 requests"),
)
REMEDIES_AGE = (
    Remedy("grpc-go", "keepalive.ServerParameters{MaxConnectionAge: ...}", f"off by default, varied by 10 %; {_MORE}"),
    Remedy("grpc-java", "NettyServerBuilder.maxConnectionAge(...)", f"off by default, varied by 10 %; {_MORE}"),
    Remedy("C-core", "grpc.max_connection_age_ms", f"off by default, varied by 10 %; {_MORE}"),
    Remedy("grpc-js", "'grpc.max_connection_age_ms': n", f"off by default, varied by 10 %; {_MORE}"),
    Remedy("envoy", "common_http_protocol_options.max_connection_duration", f"off by default; {_MORE}"),
    Remedy("tonic", "Server::builder().max_connection_age(d), max_connection_age_grace(d)", f"off by default; {_MORE}"),
)


AGE_OF_GO = Remedy(
    "grpc-go",
    "keepalive.ServerParameters{MaxConnectionAge: ..., MaxConnectionAgeGrace: ...}",
    "server: connections live longer, and their last RPCs have more time; new servers get load later",
)
_LIMITS = "server: longer-lived connections; new servers get load later"
AGES = (
    AGE_OF_GO,
    Remedy("envoy", "max_connection_duration, max_requests_per_connection and idle_timeout", _LIMITS),
    Remedy("nginx", "keepalive_requests and keepalive_time", _LIMITS),
    Remedy("Armeria", "ServerBuilder.maxConnectionAgeMillis(n), maxNumRequestsPerConnection(n)", _LIMITS),
)
