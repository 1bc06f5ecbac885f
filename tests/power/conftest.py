"""How many windows a claim about energy is tried on."""

from __future__ import annotations

import pytest


@pytest.fixture
def num_windows() -> int:
    """Enough to see a bound that is wrong as such; tests/native tries rare windows as well."""
    return 8
