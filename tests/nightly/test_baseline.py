"""Which nights are examples of a row's level, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.core.statistics.units import variance_of_mean
from pybench.model.figures import FigureKey, SmallestEffects
from pybench.nightly.baseline import Baseline, Nights, admitted, baselines

STEP = 0.01
EARLIER = tuple(STEP * (night % 2) for night in range(10))
"""Ten nights that go up and down by 1 %: by their steps the standard deviation is 1.4826 / sqrt(2) = 1.048 %."""


@pytest.mark.parametrize(
    ("level", "fall", "is_example"),
    [
        # 4 sd sqrt(1 + 1/n) is 5.93 % of one night, 5.14 % of two and 4.64 % of four.
        ((-0.1,), 0.058, True),
        ((-0.1,), 0.061, False),
        ((-0.1, -0.1), 0.050, True),
        ((-0.1, -0.1), 0.058, False),
        ((-0.1, -0.1, -0.1, -0.1), 0.050, False),
    ],
)
def test_the_first_nights_of_an_accepted_level_are_held_against_each_other(
    level: tuple[float, ...], fall: float, *, is_example: bool
) -> None:
    """By the spread of the level before it, and the error of a few nights' centre."""
    night = 10 + len(level)
    nights = Nights((*EARLIER, *level, -0.1 - fall, 0.0), start=10)
    assert (night in admitted(nights, 0.01)) == is_example


def test_a_level_after_too_few_nights_has_no_known_spread() -> None:
    """Seven of the level before: each of the first eight is an example."""
    assert 8 in admitted(Nights((*EARLIER[:7], -0.1, -0.3, 0.0), start=7), 0.01)
    assert 9 not in admitted(Nights((*EARLIER[:8], -0.1, -0.3, 0.0), start=8), 0.01)


def test_nights_on_which_the_host_was_off_are_no_examples() -> None:
    """Unless the present level has no others."""
    nights = Nights((0.0,) * 6, start=3)
    assert nights.set_apart(frozenset((1, 3))).apart == {1, 3}
    off = nights.set_apart(frozenset((1, 3, 4)))
    assert off.apart == {1}
    assert off.is_off
    assert not nights.set_apart(frozenset((1, 3))).is_off


def test_both_sides_of_an_acceptance_have_their_centre() -> None:
    """The mean of the nights before it, and of those since; there is none before the first night of all."""
    row = FigureKey("p", "output_tokens_per_s")
    nights = Nights((*EARLIER, -0.1, -0.1, -0.1), start=10)
    for changed, centre in ((nights, 0.005), (Nights((*EARLIER, 0.0)), None)):
        base = baselines({row: changed}, SmallestEffects())[row]
        assert base is not None
        assert base.earlier_centre == (None if centre is None else pytest.approx(centre))
        assert base.centre == pytest.approx(0.005 if centre is None else -0.1)


def test_a_mean_of_nights_that_resemble_each_other_is_known_less() -> None:
    """Of four nights with a correlation of 0.5 by hand: (4 + 2 (3/2 + 2/4 + 1/8)) / 16."""
    assert variance_of_mean(4, 0.5) == pytest.approx(8.25 / 16)
    assert variance_of_mean(4, 0.0) == 0.25
    level = {night: float(night % 2) for night in range(10)}
    independent = Baseline(1.0, 9.0, level, {})
    assert independent.others.error(4) == pytest.approx((1 / 4 + 1 / 10) ** 0.5)
    assert replace(independent, correlation=0.5).others.error(4) > 1.3 * independent.others.error(4)
