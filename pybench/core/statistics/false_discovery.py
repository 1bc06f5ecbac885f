"""Discoveries among many findings."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

FALSE_DISCOVERIES = 0.004
"""Expected share of false discoveries; without any real effect, the probability of one."""

_Key = TypeVar("_Key", bound=Hashable)


def discoveries(probabilities: Mapping[_Key, float], share: float = FALSE_DISCOVERIES) -> set[_Key]:
    """What stands, of the probability of each by chance (Y. Benjamini, Y. Hochberg, JRSS B 57, 1995)."""
    ordered = sorted(probabilities, key=probabilities.__getitem__)
    num = max((n for n, key in enumerate(ordered, 1) if probabilities[key] <= share * n / len(ordered)), default=0)
    return set(ordered[:num])


def sure(shares: Mapping[_Key, float]) -> set[_Key]:
    """What stands where any false finding is to be as rare as that of one alone (S. Holm, Scand. J. Statist. 6, 1979).

    ``shares`` are the probability of each by chance, over its own level.
    """
    ordered = sorted(shares, key=shares.__getitem__)
    num = next((n for n, key in enumerate(ordered) if shares[key] > 1 / (len(ordered) - n)), len(ordered))
    return set(ordered[:num])


def joint_probability(probabilities: Mapping[_Key, float]) -> float:
    """Probability of the smallest ones by chance, of figures that move together (R. Simes, Biometrika 73, 1986)."""
    ordered = sorted(probabilities.values())
    return min((1.0, *(len(ordered) * p / n for n, p in enumerate(ordered, 1))))
