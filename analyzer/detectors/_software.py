"""Recognise software by the product tokens that it sends, or by the habits that the core inferred it from."""

from __future__ import annotations

from ..summary import figures
from ..tables import Tables

PRODUCTS: dict[str, tuple[str, ...]] = {
    "nginx": ("nginx", "openresty"),
    "haproxy": ("haproxy",),
    "envoy": ("envoy", "istio-envoy"),
    "nghttpx": ("nghttpx",),
    "caddy": ("caddy",),
    "traefik": ("traefik",),
    "AWS ALB": ("awselb",),
    "GCP load balancer": ("google frontend", "gfe"),
}
"""Proxies and load balancers by the tokens of their `server` and `via` fields, in lower case."""


def recognise_proxy(*names: str | None) -> str | None:
    """Recognise a proxy by its `server` or `via` field, or by an inferred name: `nginx/1.22.1` is `nginx`."""
    words = [word for name in names if name for word in (name.lower(), *name.lower().replace("/", " ").split())]
    return next((known for known, tokens in PRODUCTS.items() for word in words if word in tokens), None)


def server_of(tables: Tables, connection: int) -> str | None:
    """Recognise the proxy at the server's end of a connection."""
    return recognise_proxy(figures.server_implementation(tables, connection))
