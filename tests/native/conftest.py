"""How many windows a claim about energy is tried on."""

from __future__ import annotations

import pytest


@pytest.fixture
def num_windows() -> int:
    """Five times as many as the pure tier takes."""
    return 40
