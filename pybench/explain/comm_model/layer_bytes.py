"""Memory traffic of what a layer does beside its products and attention."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LayerBytes:
    """What is read and written in a layer, forward and backward: of a token, or of each of its hidden numbers."""

    forward: float
    backward: float

    def __add__(self, other: LayerBytes) -> LayerBytes:
        return LayerBytes(self.forward + other.forward, self.backward + other.backward)

    def step(self, *, recompute: bool) -> float:
        """Of a training's step; what is computed again goes forward twice."""
        return self.forward * (1 + recompute) + self.backward
