"""The scripts in docs/, which are no modules of a package."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType

_DOCS = Path(__file__).parent.parent / "docs"


@cache
def script(name: str) -> ModuleType:
    """``docs/NAME.py``, imported."""
    spec = importlib.util.spec_from_file_location(name, _DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
