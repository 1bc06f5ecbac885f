"""Joules of one window against the truth, where a test looks at one window of a run in real time."""

from __future__ import annotations


def near(truth_j: float, low_j: float, high_j: float) -> bool:
    """Whether the truth lies within twice the bound's width.

    A bound holds the truth in at least 99 of 100 windows, which seeded tests and benchmarks count: a test of one window
    that asserts the bound itself fails now and then.
    """
    half_j = (high_j - low_j) / 2
    return low_j - half_j <= truth_j <= high_j + half_j
