"""Percentiles between the two nearest values."""

from __future__ import annotations

import numpy as np
import pytest

from pybench.model.workloads.generate import percentiles


def test_percentiles_lie_between_the_two_nearest() -> None:
    """Of five values the places are 0, 1, 2, 3 and 4: 90 % is 3.6, 99 % is 3.96. One value is every percentile."""
    assert percentiles([1, 2, 3, 4, 14], (0, 50, 90, 99, 100)) == pytest.approx([1, 3, 10, 13.6, 14])
    assert percentiles([0.3], (50, 99)) == [0.3, 0.3]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 10, 250])
def test_percentiles_are_numpys(count: int) -> None:
    """Of any number of values."""
    ordered = np.sort(np.random.default_rng(count).exponential(size=count))
    percents = (50, 90, 95, 99)
    assert percentiles(ordered.tolist(), percents) == pytest.approx(np.percentile(ordered, percents), rel=1e-14)
