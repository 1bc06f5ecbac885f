"""The spread that points have in common, and the point that has no part in it."""

from __future__ import annotations

import math

import pytest

from pybench.compute.contrast import contrast
from pybench.compute.spread import common_spread

_QUIET = [[0.0, 0.001 * (1 + 0.1 * place), -0.002] for place in range(9)]
_NOISY = [0.0, 0.03, -0.02]


def test_a_point_that_scatters_more_than_chance_is_judged_by_its_own_spread() -> None:
    """Ten times the others' spread: theirs is as without it, and its own stays as it is."""
    alone, beside = common_spread(_QUIET), common_spread([*_QUIET, _NOISY])
    assert alone is not None
    assert beside is not None
    assert (beside.variance, beside.freedom) == pytest.approx((alone.variance, alone.freedom))
    assert beside.num_points == 10
    own, freedom = beside.moderated(0.025**2, 2)
    assert (own, freedom) == (0.025**2, 2)
    found = contrast([_NOISY], spread=beside)
    assert found is not None
    assert found.freedom == 2


def test_points_alike_share_all_of_it() -> None:
    """Among nine quiet points twice their variance is chance: shrunk, with more degrees of freedom than its own two."""
    spread = common_spread(_QUIET)
    assert spread is not None
    variance, freedom = spread.moderated(2 * spread.variance, 2)
    assert variance < 2 * spread.variance
    assert freedom > 2
    assert math.isfinite(freedom)
