"""The change-point test: steps are found, nights that resemble the ones before them are none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from pybench.model.figures import FigureKey
from pybench.nightly.baseline import correlations, residuals_about_line
from pybench.nightly.night_look import Split, last_change, lasting_change, newest_change

_ROWS = 300


def _nights(random: np.random.Generator, num: int, correlation: float) -> NDArray[np.float64]:
    """Values with an sd of 1, each correlated with the one before it."""
    noise = random.standard_normal(num)
    values = noise.copy()
    for night in range(1, num):
        values[night] = correlation * values[night - 1] + math.sqrt(1 - correlation**2) * noise[night]
    return values


@pytest.mark.no_cover
@pytest.mark.parametrize("num", [60, 120])
def test_nights_that_resemble_those_before_them_are_no_change(num: int) -> None:
    """Neighbours correlated by 0.6: as independent ones, 5 to 7 % of rows have a change that would stay shown."""
    random = np.random.default_rng(21)
    rows = {FigureKey(str(n), "m"): [_nights(random, num, 0.6).tolist()] for n in range(_ROWS)}
    known = correlations({row: [residuals_about_line(levels[0])] for row, levels in rows.items()})
    assert np.mean([*known.values()]) == pytest.approx(0.6, abs=0.05)
    found = sum(last_change(values, known[row]) is not None for row, (values,) in rows.items())
    assert found <= 1


@pytest.mark.no_cover
def test_a_step_is_found_all_the_same() -> None:
    """Of two standard deviations, in the middle of 60 independent nights."""
    random = np.random.default_rng(22)
    found = 0
    for _ in range(_ROWS):
        values = _nights(random, 60, 0.0)
        values[30:] -= 2
        found += last_change(values.tolist()) is not None
    assert found >= 0.93 * _ROWS


def test_equal_halves_are_a_change_without_any_spread() -> None:
    """Nothing is correlated where nothing is left."""
    change = last_change([1.0] * 10 + [0.5] * 10)
    assert change is not None
    assert (change.place, change.is_lower) == (10, True)


@pytest.mark.parametrize(("num", "is_lasting"), [(4, False), (5, True)])
def test_a_change_of_few_nights_is_the_newest_and_no_lasting_one(num: int, *, is_lasting: bool) -> None:
    """Beyond chance in both; a part needs four nights, so that four may be too many. The other direction is none."""
    values = [0.01 * (night % 2) for night in range(20)] + [-1 + 0.01 * (night % 2) for night in range(num)]
    assert (lasting_change(values, is_lower=True) is not None) == is_lasting
    assert lasting_change(values, is_lower=False) is None
    newest = newest_change(values, is_lower=True)
    assert newest is not None
    assert newest.place == 20


def test_a_split_by_night() -> None:
    """Of values of the nights 3, 4, 8 and 9."""
    assert Split(2, 1, 3, 1.0, 0.5).at([3, 4, 8, 9]) == Split(8, 4, 9, 1.0, 0.5)
