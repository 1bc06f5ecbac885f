"""Some event files of a hostile worker before each commit; the rest is in ``tests/whole``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runner.attempt_events import contract
from tests.runner.contract_fuzz import (
    assert_no_lie,
    assert_readable,
    check_changed_bytes,
    check_changed_values,
    lines_of,
    outcome,
)


@pytest.mark.parametrize("seed", range(2))
def test_changed_bytes(tmp_path: Path, seed: int) -> None:
    """1,000 files."""
    check_changed_bytes(tmp_path, seed)


@settings(
    max_examples=200, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_changed_values(tmp_path: Path, data: st.DataObject) -> None:
    """200 of them."""
    check_changed_values(tmp_path, data)


def test_the_unchanged_files_are_measured(tmp_path: Path) -> None:
    """Else nothing above would show anything."""
    kept = contract()
    record, measured = outcome(tmp_path, kept, [b"\n".join(lines_of(r, kept.start_ns)) + b"\n" for r in range(2)])
    assert measured
    assert_readable(record)
    assert_no_lie(record, kept)
    with pytest.raises(AssertionError):
        assert_no_lie(replace(record, ranks=record.ranks[::-1]), kept)
