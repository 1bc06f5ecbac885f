"""A GPU against the others: intervals of shares, by hand."""

from __future__ import annotations

import pytest

from pybench.core.node_ranks import Judged, judge_alike, shares_of_others
from pybench.model.verdict import Decision
from tests.nodes import Node


def test_an_interval_that_shows_nothing_is_not_printed() -> None:
    """Beyond a hundred times the value, as in tables; here 1.22 of the others, by 0.01 or 149 times."""
    decision = Decision(num_attempts=2, p_pass=0.2, p_fail=0.3, pass_level=0.01, fail_level=0.01)
    assert str(Judged(0.22, -0.99, 148.14, "inconclusive", decision)) == "+22.0 % ±over 100x"
    assert str(Judged(0.22, -0.94, 20.0, "inconclusive", decision)) == "+22.0 % [-94.0 %, +2000.0 %]"


def test_a_gpu_beside_one_that_did_nothing_is_no_slower() -> None:
    """The other one is; where both did nothing, both are."""
    assert shares_of_others([[1.0]], [[[0.0]]]) == [[1.0]]
    assert shares_of_others([[0.0]], [[[1.0]]]) == [[1e-6]]
    assert shares_of_others([[0.0]], [[[0.0]]]) == [[1e-6]]


@pytest.mark.parametrize(
    ("first", "low", "high"),
    [
        # Logarithms 0.00049988 and 0.01192857: mean 0.00621422, error 0.00571435, t(1) = 12.7062.
        (1.0005, -0.06423, 0.08201),
        # -0.00050013 and 0.01192857: mean 0.00571422, error 0.00621435.
        (0.9995, -0.07063, 0.08836),
    ],
)
def test_an_interval_is_of_the_shares_logarithms(first: float, low: float, high: float) -> None:
    """Two attempts at +0.05 or -0.05 % and +1.2 % of the others' median: no sign makes an interval jump."""
    others = [[[90.0], [90.0]], [[100.0], [100.0]], [[110.0], [110.0]]]
    own = shares_of_others([[100.0 * first], [101.2]], others)
    assert [value for (value,) in own] == pytest.approx([first, 1.012])
    point = Node().plan.points[0]
    judged = judge_alike(point, {0: own, 1: [[1.0], [1.0]]}, tolerance=0.1)[0]
    assert judged.low == pytest.approx(low, abs=1e-5)
    assert judged.high == pytest.approx(high, abs=1e-5)
