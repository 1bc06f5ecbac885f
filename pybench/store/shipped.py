"""Where the suites that come with pybench are."""

from __future__ import annotations

from pathlib import Path

import pybench


def shipped_suites() -> Path:
    """Folder of the shipped suites: inside an installed wheel, or the checkout's top-level ``suites``."""
    package = Path(pybench.__file__).parent
    inside = package / "suites"
    return inside if inside.is_dir() else package.parent / "suites"
