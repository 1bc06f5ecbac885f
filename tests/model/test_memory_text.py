"""Amounts of memory as plan and report have them."""

from __future__ import annotations

import pytest

from pybench.core.numbers import quantity
from pybench.model.text import amount_text
from tests.builders import estimate


@pytest.mark.parametrize(
    ("num_bytes", "planned", "measured"),
    [
        (143_771 * 2**20, "140 GiB", "140.4 GiB"),  # an H200
        (68.06e9, "63.4 GiB", "63.39 GiB"),
        (1234.5 * 2**30, "1,234 GiB", "1,234 GiB"),
        (64 * 2**20, "64 MiB", "64 MiB"),
        (0, "0 B", "0 B"),
    ],
)
def test_plan_and_report_have_one_unit(num_bytes: float, planned: str, measured: str) -> None:
    """An estimate has three digits, a measured peak four."""
    assert (amount_text(num_bytes), quantity(estimate(num_bytes, "bytes"))) == (planned, measured)
