"""Whether pybench's compiled extensions are there and as new as its Python, and what to do where they are not."""

from __future__ import annotations

from importlib import import_module
from typing import Literal

REMEDY = "reinstall with a C++17 compiler at hand: pip install ."
NAMES = {
    "_energy": ("filtered", "fitting_periods", "interpolated", "middle_deviation", "published", "undone", "within"),
    "_nvml": ("Recorder",),
}
"""Names in each extension that pybench calls."""


def extension_fault(name: Literal["_energy", "_nvml"]) -> str | None:
    """Why the extension can't be used: absent, not loadable, or of an older build; ``None`` where it can."""
    try:
        extension = import_module(f"pybench.{name}")
    except ImportError as error:
        return f"extension pybench.{name} not built: {error}"
    absent = [each for each in NAMES[name] if not hasattr(extension, each)]
    return f"extension pybench.{name} is an older build without {', '.join(absent)}" if absent else None
