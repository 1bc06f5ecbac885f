"""11,000 event files with random bytes changed and 2,000 with hostile values, in addition to ``tests/run``."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.run.contract_fuzz import TURN, check_changed_bytes, check_changed_values


@pytest.mark.parametrize("seed", range(2, 20))
def test_changed_bytes(tmp_path: Path, seed: int) -> None:
    """500 files each."""
    check_changed_bytes(tmp_path, seed)


@pytest.mark.parametrize("seed", range(20, 24))
def test_changed_bytes_of_turns(tmp_path: Path, seed: int) -> None:
    """500 files each."""
    check_changed_bytes(tmp_path, seed, TURN)


@settings(
    max_examples=2_000, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_changed_values(tmp_path: Path, data: st.DataObject) -> None:
    """Any value of any event is exchanged for a hostile one, or gains a key."""
    check_changed_values(tmp_path, data)
