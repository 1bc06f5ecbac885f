"""What workers run in addition to pybench: a Python, its packages, and the variables that tune them."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.backend import package_distributions

RECORDED_PACKAGES = (
    *package_distributions(),
    *("bitsandbytes", "flash-attn", "triton", "unsloth-zoo", "nvidia-nccl-cu12", "nvidia-nccl-cu13"),
)
"""Packages, by their registry names, that shape a measurement where they are installed."""
OLDEST_PYTHON = (3, 10)
"""That runs a worker."""


@dataclass(frozen=True, kw_only=True)
class Software:
    """A Python's version and those of the packages of ``RECORDED_PACKAGES`` that it has."""

    python: str
    packages: dict[str, str]
