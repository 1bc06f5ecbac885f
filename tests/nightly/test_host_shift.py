"""The shifts of a host decide which of its nights are no example."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from pybench.model.figures import FigureKey
from pybench.nightly.baseline import Baseline, Nights
from pybench.nightly.host_shift import MIN_POINTS, HostNights

SMALLEST = math.log1p(0.01)
USUAL = (0.001, -0.001, 0.002, -0.002, 0.0)
"""The shifts of a host that scatters by 0.1 to 0.2 %."""


def usual(num: int, level: float = 0.0) -> list[float]:
    """This number of nights about a level."""
    return [level + USUAL[night % len(USUAL)] for night in range(num)]


def apart(shifts: Sequence[float | None], start: int = 0) -> frozenset[int]:
    """Unusual nights of a host whose five points shift alike; ``None`` is a night without points."""
    points = tuple([] if shift is None else [shift] * MIN_POINTS for shift in shifts)
    return HostNights(points, start, SMALLEST).apart


def test_a_slow_host_is_held_to_the_nights_before_it() -> None:
    """Also once it was slow on most nights; the last one is looked at, and is none of them."""
    assert apart([*usual(12), *usual(30, -0.05), -0.05]) == frozenset(range(12, 42))


def test_a_slow_night_among_the_first_ones_is_found_by_those_after_it() -> None:
    """It had too few before it. A night that measured too little is neither."""
    assert apart([0.0, 0.001, -0.03, None, *usual(12), 0.0]) == {2}


def test_fewer_than_eight_alike_are_all_kept() -> None:
    """The first eight nights, five usual and three slow, show no usual shift yet."""
    assert apart([*usual(5), -0.05, -0.051, -0.052, 0.0]) == frozenset()
    assert apart([*usual(4), -0.05, 0.0]) == frozenset()


def test_a_host_may_change_slowly() -> None:
    """0.02 % a night over four months: each night is like those before it, which scatter more and more."""
    assert apart([0.0002 * night + shift for night, shift in enumerate(usual(121))]) == frozenset()


def test_an_accepted_level_is_held_to_its_own_first_nights() -> None:
    """Two nights of it, and 30 that are 1.5 % lower. Without a start all of them are slow nights of one host."""
    fallen = [*usual(12), -0.05, -0.05, *usual(30, -0.065), -0.065]
    assert apart(fallen, 12) == frozenset(range(14, 44))
    assert apart(fallen) == frozenset(range(12, 44))
    assert apart([*usual(12), *usual(30, -0.05), -0.05], 12) == frozenset()


@pytest.mark.parametrize(
    ("level", "fall", "is_apart"),
    [((-0.05,), 0.038, False), ((-0.05,), 0.039, True), ((-0.05,) * 2, 0.033, False), ((-0.05,) * 2, 0.034, True)],
)
def test_few_nights_of_a_level_have_the_spread_of_those_before(
    level: tuple[float, ...], fall: float, *, is_apart: bool
) -> None:
    """0 and 0.8 % by turns: a robust sd of 1.15 * 1.4826 * 0.4 = 0.682 %, of which 4 sqrt(1 + 1/n) are 3.86, 3.34 %."""
    shifts = [*(0.008 * (night % 2) for night in range(12)), *level, -0.05 - fall, -0.05]
    assert apart(shifts, 12) == ({12 + len(level)} if is_apart else frozenset())


def test_a_level_after_too_few_nights_is_learnt_like_the_first() -> None:
    """Seven nights before the level show no spread, so a far night among its first is left out."""
    assert apart([*usual(7), *usual(3, -0.05), -0.08, *usual(9, -0.05), -0.05], 7) == {10}


@pytest.mark.parametrize(
    ("start", "fall", "is_found"), [(0, 0.0162, False), (0, 0.0164, True), (12, 0.0237, False), (12, 0.0239, True)]
)
def test_a_shift_is_held_against_the_nights_of_its_level(start: int, fall: float, *, is_found: bool) -> None:
    """Twelve nights of an sd of 0.4178 % and one at their mean: all of one level, or the last one behind an acceptance.

    The t of 12 and 11 degrees of freedom at 0.1 % are 3.930 and 4.025: limits of 3.930 * 0.4 * sqrt(1 + 1/13) = 1.631 %
    and of 4.025 * 0.4178 * sqrt(1 + 1) = 2.378 %.
    """
    values = (*(0.004 * (-1) ** night for night in range(12)), 0.0, -fall)
    level = {night: value for night, value in enumerate(values[:-1]) if night >= start}
    earlier = {night: value for night, value in enumerate(values[:-1]) if night < start}
    rows = {FigureKey(f"p{n}", "output_tokens_per_s"): Nights(values, start) for n in range(5)}
    centres = dict.fromkeys(rows, Baseline(0.01, 12.0, level, earlier))
    found = HostNights.of(rows, centres, "speed", SMALLEST).tonight
    assert (found is not None) == is_found
    if found is not None:
        assert found.value == pytest.approx(-fall)
        assert (found.num_shifted, found.num_points) == (5, 5)
