"""Sort remedies so that those of the implementation seen come first."""

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


def find_family(implementation: str | None) -> str | None:
    """Find the name that remedies use for an implementation named by `user-agent` or inferred from frames."""
    name = (implementation or "").lower().partition("/")[0].partition(" ")[0]
    for known, agents in _FAMILIES.items():
        if any(name == agent or name.startswith(f"{agent}-") for agent in agents):
            return known
    return None


def sort_by_implementation(remedies: Iterable[Remedy], implementation: str | None) -> tuple[Remedy, ...]:
    """Sort remedies so that those of the implementation seen come before the others."""
    seen = find_family(implementation)
    return tuple(sorted(remedies, key=lambda remedy: remedy.implementation != seen))
