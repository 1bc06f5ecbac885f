"""Memory traffic of what a layer does beside its products and attention."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerBytes:
    """What is read and written in a layer, forward and backward: of a token, or of each of its hidden numbers."""

    forward: float
    backward: float

    def step(self, *, recompute: bool) -> float:
        """Of a training's step; recomputed layers go forward twice."""
        return self.forward * (1 + recompute) + self.backward
