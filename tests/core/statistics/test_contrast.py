"""Sums of means against a limit, with what attempts do not reduce."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.core.statistics.contrast import Contrast

LEVEL = 0.0125
TWO = Contrast(value=0.0, variance=6e-6, freedom=1.5, num_attempts=2)


def _of(num_attempts: int, like: Contrast) -> Contrast:
    """Attempts with the same scatter."""
    return replace(
        like,
        num_attempts=num_attempts,
        variance=like.variance * like.num_attempts / num_attempts,
        freedom=like.freedom * (num_attempts - 1) / (like.num_attempts - 1),
    )


@pytest.mark.parametrize("systematic_sd", [0.0, 0.002, 0.005, 0.01, 0.017])
@pytest.mark.parametrize("limit", [0.004, 0.008, 0.012, 0.02, 0.0434])
def test_as_many_attempts_as_are_named_decide_it(systematic_sd: float, limit: float) -> None:
    """And one fewer do not, by the quantiles of the verdict itself; none are named where none decide."""
    found = replace(TWO, systematic_sd=systematic_sd)
    number = found.attempts_to_decide(limit, LEVEL)
    if number is None:
        assert _of(100, found).p_above(-limit) > LEVEL
        return
    assert _of(number + 1, found).p_above(-limit) <= LEVEL
    assert number == found.num_attempts + 1 or _of(number - 2, found).p_above(-limit) > LEVEL


def test_no_number_above_a_hundred_is_named() -> None:
    """``--attempts`` takes no more."""
    limits = [0.02 / num for num in range(1, 60)]
    numbers = [replace(TWO, systematic_sd=0.0).attempts_to_decide(limit, LEVEL) for limit in limits]
    assert max(number for number in numbers if number is not None) > 50
    assert all(number is None or number <= 100 for number in numbers)
    assert numbers[-1] is None
