"""Prove that N GPUs give the speedup they should, at the energy they should."""

from typing import Any


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attributes are of any type
    """``pybench.PowerSampler``, imported when it is first used: it needs NumPy, and most of pybench does not."""
    if name == "PowerSampler":
        from pybench.power.sampler import PowerSampler  # noqa: PLC0415

        return PowerSampler
    raise AttributeError(f"module 'pybench' has no attribute '{name}'")
