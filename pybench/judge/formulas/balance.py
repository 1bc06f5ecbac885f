"""How evenly the GPUs of a point work."""

from __future__ import annotations

from pybench.model.record import Energy


def energy_imbalance(energy: Energy) -> float | None:
    """(most - least) / mean of the GPUs' energy; ``None`` with one GPU, or where that of one is not known."""
    joules = [gpu.energy_j for gpu in energy.gpus if gpu.energy_j is not None]
    if len(joules) < 2 or len(joules) < len(energy.gpus) or not sum(joules):  # noqa: PLR2004 - one GPU has no other
        return None
    return (max(joules) - min(joules)) / (sum(joules) / len(joules))
