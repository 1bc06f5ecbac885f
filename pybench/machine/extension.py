"""Whether pybench's compiled extensions are there and as new as its Python, and what to do where they are not."""

from __future__ import annotations

import hashlib
import re
from importlib import import_module
from types import ModuleType
from typing import Literal

REMEDY = "reinstall with a C++17 compiler at hand: pip install ."
INTERFACES = {"_energy": "6fa250302e39bb54", "_nvml": "b2f842c146aeb20f"}
"""What pybench calls of each extension, as :func:`interface` gives it."""


def interface(extension: ModuleType) -> str:
    """Digest of names, arguments and descriptions, without types: versions of pybind11 spell them differently."""
    classes = (value for _, value in sorted(vars(extension).items()) if isinstance(value, type))
    digest = hashlib.sha256()
    for owner in (extension, *classes):
        for name in sorted(name for name in vars(owner) if name == "__init__" or not name.startswith("_")):
            signature, _, description = (getattr(owner, name).__doc__ or "").partition("\n")
            digest.update(repr((name, re.findall(r"(\w+):", signature), description.split())).encode())
    return digest.hexdigest()[:16]


def extension_fault(name: Literal["_energy", "_nvml"]) -> str | None:
    """Why the extension can't be used: absent, not loadable, or an older build; ``None`` where it can."""
    try:
        extension = import_module(f"pybench.{name}")
    except ImportError as error:
        return f"extension pybench.{name} not built: {error}"
    return None if interface(extension) == INTERFACES[name] else f"extension pybench.{name} is an older build"
