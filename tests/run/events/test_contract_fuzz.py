"""Some event files of a hostile worker before each commit; the rest is in ``tests/whole``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.run.contract_fuzz import (
    GENERATE,
    TURN,
    Honest,
    assert_no_lie,
    assert_readable,
    check_changed_bytes,
    check_changed_values,
    outcome,
)


@pytest.mark.parametrize("seed", range(2))
def test_changed_bytes(tmp_path: Path, seed: int) -> None:
    """1,000 files."""
    check_changed_bytes(tmp_path, seed)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_values(tmp_path: Path, data: st.DataObject) -> None:
    """200 of them."""
    check_changed_values(tmp_path, data)


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_values_of_turns(tmp_path: Path, data: st.DataObject) -> None:
    """200 of them."""
    check_changed_values(tmp_path, data, TURN)


@pytest.mark.parametrize("honest", [GENERATE, TURN], ids=["generate", "turn"])
def test_the_unchanged_files_are_measured(tmp_path: Path, honest: Honest) -> None:
    """Else nothing above would show anything."""
    kept = honest.contract()
    files = [b"\n".join(honest.lines_of(r, kept.start_ns)) + b"\n" for r in range(2)]
    record, measured = outcome(tmp_path, kept, files)
    assert measured, record.failure
    assert_readable(record)
    assert_no_lie(record, kept, honest)
    with pytest.raises(AssertionError):
        assert_no_lie(replace(record, ranks=record.ranks[::-1]), kept, honest)
