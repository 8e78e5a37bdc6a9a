"""Recognise software by the product tokens that it sends, or by what the core inferred from its frames."""

import functools
from collections.abc import Iterable

from ..model.finding import Remedy

C_CORE = "C-core (C++, Python, Ruby, PHP)"
"""How remedies name the implementations that share grpc-core."""

PROXIES = {
    "nginx": ("nginx", "openresty"),
    "haproxy": ("haproxy",),
    "envoy": ("envoy", "istio-envoy"),
    "nghttpx": ("nghttpx",),
    "caddy": ("caddy",),
    "traefik": ("traefik",),
    "Apache": ("apache",),
    "h2o": ("h2o",),
    "Pingora": ("pingora",),
    "AWS ALB": ("awselb",),
    "GCP load balancer": ("google",),
}
"""Proxies and load balancers by the tokens of their `server` and `via` fields, in lower case."""

LIBRARIES = {
    "grpclib": ("grpc-python-grpclib", "grpclib"),
    "grpc-java-okhttp": ("grpc-java-okhttp",),
    "grpc-java": ("grpc-java",),
    "connect-go": ("grpc-go-connect", "connect-go"),
    "connect-es": ("grpc-es-connect", "connect-es"),
    "grpc-go": ("grpc-go",),
    "grpc-js": ("grpc-node", "grpc-js"),
    "grpc-dotnet": ("grpc-dotnet", "kestrel"),
    "grpc-swift": ("grpc-swift",),
    "tonic": ("tonic",),
    "Armeria": ("armeria",),
    "Dubbo": ("dubbo",),
    "Hypercorn": ("hypercorn",),
    "Jetty": ("jetty",),
    "Pekko HTTP": ("pekko-http",),
    "Go net/http": ("go",),
    C_CORE: ("grpc-c", "grpc-c++", "grpc-python", "grpc-ruby", "grpc-php", "grpc-csharp", "grpc-objc"),
}
"""gRPC implementations by the tokens of their `user-agent` and `server` fields; the first one that fits counts."""

SOFTWARE = PROXIES | LIBRARIES
"""All software that is recognised, by the name that remedies use."""


@functools.cache
def recognise(*names: str | None) -> str | None:
    """Recognise software by `user-agent`, `server` and `via` fields or inferred names: `nginx/1.22.1` is `nginx`."""
    tokens = [token for name in names if name for token in (part.partition("/")[0] for part in name.lower().split())]
    for token in tokens:
        for known, products in SOFTWARE.items():
            if any(token == product or token.startswith(f"{product}-") for product in products):
                return known
    return None


def is_of(implementation: str, software: str | None) -> bool:
    """Check whether a remedy is for the software; `C-core` is short for C-core's long name."""
    return software is not None and implementation.partition(" (")[0].lower() == software.partition(" (")[0].lower()


def find_none(software: str) -> Remedy:
    """Say that no setting of the software that was seen is known."""
    return Remedy(software, "no setting is known", "none is known for this; the others are of other software")


def sort_by_implementation(remedies: Iterable[Remedy], implementation: str | None) -> tuple[Remedy, ...]:
    """Sort remedies so that those of the implementation seen come before the others; say so when it has none."""
    seen, found = recognise(implementation), tuple(remedies)
    own = tuple(remedy for remedy in found if is_of(remedy.implementation, seen))
    rest = tuple(remedy for remedy in found if remedy not in own)
    if seen is None or own or any(remedy.implementation in _EVERYBODY for remedy in found):
        return (*own, *rest)
    return (find_none(seen), *rest)


_EVERYBODY = ("any gRPC implementation", "application", "linux")
"""How remedies name what fits all software."""
