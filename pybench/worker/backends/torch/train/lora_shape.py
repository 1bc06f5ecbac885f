"""Rank, scale and target modules of adapters, for every library that makes them."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.workloads.train import Train, projections


@dataclass(frozen=True)
class LoraShape:
    """Adapters of ``rank`` at the projections ``targets``, their product scaled by ``alpha`` over ``rank``."""

    rank: int
    alpha: int
    targets: tuple[str, ...]


def lora_shape(settings: Train) -> LoraShape:
    """The settings with their defaults; they have a rank."""
    rank = settings.lora_rank
    assert rank is not None
    return LoraShape(rank, settings.lora_alpha or 2 * rank, projections(settings.lora_targets))
