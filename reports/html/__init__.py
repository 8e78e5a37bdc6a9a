"""One page that holds everything: text and tables for everybody, and a time line for browsers that run its script."""

from __future__ import annotations

from ...analyzer.result import Analysis
from ...analyzer.scene import Scene, thinned
from .page import assembled

MOST_BYTES = 4_900_000
"""Size of the page: below what people can attach to an issue of most trackers, and quick to open."""


def render(analysis: Analysis, scene: Scene) -> str:
    """The page; when it would be too large, with less detail, as the page says."""
    text = assembled(analysis, scene)
    while len(text) > MOST_BYTES and len(scene.rpcs.stream) + len(scene.packets.packet) + len(scene.waits.stream):
        scene = thinned(scene)
        text = assembled(analysis, scene)
    return text


__all__ = ["MOST_BYTES", "render"]
