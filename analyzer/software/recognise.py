"""Recognise software by the product tokens that it sends, or by what the core inferred from its frames."""

import functools

from .implementation import C_CORE as C_CORE
from .known import read_all


@functools.cache
def recognise(*names: str | None) -> str | None:
    """Recognise software by `user-agent`, `server` and `via` fields or inferred names: `nginx/1.22.1` is `nginx`."""
    products = _list_products()
    tokens = [token for name in names if name for token in (part.partition("/")[0] for part in name.lower().split())]
    for token in tokens:
        parts = token.split("-")  # `grpc-go-connect` is another one than `grpc-go`
        for length in range(len(parts), 0, -1):
            if found := products.get("-".join(parts[:length])):
                return found
    return None


@functools.cache
def _list_products() -> dict[str, str]:
    return {product: one.name for one in read_all().values() for product in one.tokens}


def is_proxy(software: str | None) -> bool:
    """Check whether software is a proxy or a load balancer."""
    return software in read_all() and read_all()[software].is_proxy


def is_of(implementation: str, software: str | None) -> bool:
    """Check whether a remedy is for the software."""
    return software is not None and implementation == software
