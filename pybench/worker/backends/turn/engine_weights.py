"""Frozen weights of the engine: what the trainer computes with, which four bits round."""

from __future__ import annotations

from functools import partial

from pybench.model.workloads.train import Train
from pybench.worker.backends.torch.architecture import Changed, unchanged
from pybench.worker.backends.torch.train.package import needs_package


def rounding(training: Train) -> bool | None:
    """Whether the scales of the trainer's four bits are quantised once more; ``None`` where it has no four bits."""
    return training.double_quantization is not False if training.weights == "nf4" else None


def rounded(double: bool | None) -> Changed:
    """What :func:`rounding` leaves of each weight: an engine that had others would answer by another policy."""
    if double is None:
        return unchanged
    with needs_package("weights = 'nf4'", "qlora"):
        from pybench.worker.backends.torch.train.nf4 import through_four_bits
    return partial(through_four_bits, double=double)
