"""How evenly the GPUs of a point work, and how much of a step those of a pipeline wait."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.model.record import Energy

_SEVERAL = 2


def energy_imbalance(energy: Energy) -> float | None:
    """(most - least) / mean of the GPUs' energy; ``None`` with one GPU, or where that of one is not known."""
    joules = [gpu.energy_j for gpu in energy.gpus if gpu.energy_j is not None]
    return _apart(joules) if len(joules) == len(energy.gpus) else None


def stage_use(busy_s: Sequence[float], length_s: float) -> dict[str, float | None]:
    """Of ranks that compute for ``busy_s`` of a step of ``length_s``; nothing with one rank, which waits for no other.

    A schedule of p equal stages and m microbatches leaves each of them (p - 1) / (m + p - 1) of its time (GPipe,
    arXiv:1811.06965, 2.3); unequal stages, sending and launches add to it.
    """
    if len(busy_s) < _SEVERAL:
        return {}
    return {
        "stage_idle_fraction": 1 - sum(busy_s) / len(busy_s) / length_s,
        "stage_imbalance_fraction": _apart(busy_s),
    }


def _apart(amounts: Sequence[float]) -> float | None:
    """(most - least) / mean; ``None`` with one, or where all are 0."""
    if len(amounts) < _SEVERAL or not sum(amounts):
        return None
    return (max(amounts) - min(amounts)) / (sum(amounts) / len(amounts))
