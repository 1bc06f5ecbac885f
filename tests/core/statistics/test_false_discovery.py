"""Discoveries among many findings."""

from __future__ import annotations

import math

import pytest

from pybench.core.statistics.false_discovery import discoveries, joint_probability, sure
from pybench.core.statistics.units import Others


def test_a_finding_stands_by_its_rank() -> None:
    """With four at 4 % the limits are 1, 2, 3 and 4 %: b is above its limit, but c is at its limit."""
    assert discoveries({"a": 0.009, "b": 0.021, "c": 0.03, "d": 0.2}, 0.04) == {"a", "b", "c"}
    assert discoveries({"a": 0.011, "b": 0.5}, 0.02) == set()
    assert discoveries({}, 0.04) == set()


def test_the_first_that_is_not_sure_ends_what_stands() -> None:
    """With four the limits are a quarter, a third, a half and all of their levels: c is above, so d is out."""
    assert sure({"a": 0.2, "b": 0.3, "c": 0.6, "d": 0.9}) == {"a", "b"}
    assert sure({"a": 0.2, "b": 0.3, "c": 0.4, "d": 1.0}) == {"a", "b", "c", "d"}
    assert sure({"a": 0.26, "b": 0.5, "c": 0.9, "d": 0.9}) == set()
    assert sure({}) == set()


def test_figures_that_move_together_count_once() -> None:
    """Three equal probabilities give the same one; a single low one of three is three times as likely."""
    assert joint_probability({"a": 0.01, "b": 0.01, "c": 0.01}) == pytest.approx(0.01)
    assert joint_probability({"a": 0.01, "b": 0.9, "c": 0.8}) == pytest.approx(0.03)
    assert joint_probability({"a": 1.0, "b": 1.0}) == 1.0


@pytest.mark.parametrize(("freedom", "sds"), [(math.inf, 2.3263 + 1.6449), (10, 2.7638 + 1.6449)])
def test_what_is_found_is_beyond_chance_by_the_power(freedom: float, sds: float) -> None:
    """At 1 % and an error of 0.02: a normal deviate or a t of 10 degrees (printed tables), and 1.6449 for 95 %."""
    others = Others(mean=0.0, variance=0.02**2 / 2, freedom=freedom, num=1)
    assert others.detectable_fraction(0.01) == pytest.approx(1 - math.exp(-0.02 * sds), rel=1e-4)
