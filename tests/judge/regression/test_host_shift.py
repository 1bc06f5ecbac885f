"""Which nights of a host are no example, from its shifts alone."""

from __future__ import annotations

from pybench.judge.regression.host_shift import nights_apart

SMALLEST = 0.01
USUAL = (0.001, -0.001, 0.002, -0.002, 0.0)
"""The shifts of a host that scatters by 0.1 to 0.2 %."""


def usual(num: int, level: float = 0.0) -> list[float]:
    """So many nights about a level."""
    return [level + USUAL[night % len(USUAL)] for night in range(num)]


def test_a_slow_host_is_held_to_the_nights_before_it() -> None:
    """Also once it was slow on most nights; the last one is looked at, and is none of them."""
    assert nights_apart([*usual(12), *usual(30, -0.05), -0.05], SMALLEST) == frozenset(range(12, 42))


def test_a_slow_night_among_the_first_ones_is_found_by_those_after_it() -> None:
    """It had too few before it. A night that measured too little is neither."""
    assert nights_apart([0.0, 0.001, -0.03, None, *usual(12), 0.0], SMALLEST) == {2}


def test_fewer_than_eight_alike_are_all_kept() -> None:
    """Five nights as usual and three slow ones of the first eight show no usual shift yet."""
    assert nights_apart([*usual(5), -0.05, -0.051, -0.052, 0.0], SMALLEST) == frozenset()
    assert nights_apart([*usual(4), -0.05, 0.0], SMALLEST) == frozenset()


def test_a_host_may_change_slowly() -> None:
    """0.02 % a night over four months: each night is like those before it, which scatter more and more."""
    assert nights_apart([0.0002 * night + shift for night, shift in enumerate(usual(121))], SMALLEST) == frozenset()
