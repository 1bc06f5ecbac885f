"""Prove that N GPUs give the speedup they should, at the energy they should.

The names of ``__all__`` are stable; everything else may change in any version.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pybench.model.errors import MachineError, UsageError
    from pybench.model.record import Energy, GpuEnergy
    from pybench.power.sampler import PowerSampler, Window

    __version__: str

__all__ = ["Energy", "GpuEnergy", "MachineError", "PowerSampler", "UsageError", "Window", "__version__"]

_MODULES = {
    "Energy": "pybench.model.record",
    "GpuEnergy": "pybench.model.record",
    "MachineError": "pybench.model.errors",
    "PowerSampler": "pybench.power.sampler",
    "UsageError": "pybench.model.errors",
    "Window": "pybench.power.sampler",
}
"""Module of each name, imported when the name is first used: the sampler needs NumPy, and most of pybench does not."""


if not TYPE_CHECKING:  # a type checker would take every name for one of ours

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attributes are of any type
        """A public name, from its module."""
        if name == "__version__":
            metadata = import_module("importlib.metadata")
            try:
                return metadata.version("pybench-gpu")  # the distribution's name on package indexes
            except metadata.PackageNotFoundError:  # a checkout on the path, not installed
                return "0.0.0+checkout"
        if name not in _MODULES:
            raise AttributeError(f"module 'pybench' has no attribute '{name}'")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names too, for completion."""
    return sorted({*globals(), *__all__})
