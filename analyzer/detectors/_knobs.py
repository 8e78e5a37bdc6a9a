"""Remedies in the order that suits a reader: those of the implementation that was seen come first."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.finding import Remedy

C_CORE = "C-core (C++, Python, Ruby, PHP)"
"""How remedies name the implementations that share grpc-core."""

_FAMILIES = {
    "grpc-go": ("grpc-go",),
    "grpc-java": ("grpc-java",),
    "grpc-js": ("grpc-node", "grpc-js"),
    "tonic": ("tonic",),
    "grpc-dotnet": ("grpc-dotnet",),
    "Envoy": ("envoy",),
    C_CORE: ("grpc-c", "grpc-c++", "grpc-python", "grpc-ruby", "grpc-php", "grpc-objc", "grpc-c-core"),
}


def family(implementation: str | None) -> str | None:
    """The name that remedies use for what `user-agent` or the frames tell."""
    name = (implementation or "").lower().partition("/")[0].partition(" ")[0]
    for known, agents in _FAMILIES.items():
        if any(name == agent or name.startswith(f"{agent}-") for agent in agents):
            return known
    return None


def seen_first(remedies: Iterable[Remedy], implementation: str | None) -> tuple[Remedy, ...]:
    """The remedies, those of the implementation that was seen before the others."""
    seen = family(implementation)
    return tuple(sorted(remedies, key=lambda remedy: remedy.implementation != seen))
