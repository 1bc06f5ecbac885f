"""Speedups beyond what was measured: predictions, each with an interval.

Three laws, of which none is known to hold: Amdahl's (a serial fraction) and Gunther's Universal Scalability Law (also a
cost of agreeing that grows with every pair: N. J. Gunther, Guerrilla Capacity Planning, 2007, chapter 4), both fitted
to the measured speedups, and the caller's own, such as the alpha-beta model's. The interval spans them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

Law = Callable[[int], float]


@dataclass(frozen=True)
class Prediction:
    """Speedup at a count that was not measured: the lowest and highest that a law gives, and the mean of the two."""

    count: int
    speedup: float
    low: float
    high: float


def amdahl(measured: Mapping[int, float]) -> Law:
    """S(N) = N / (1 + sigma (N - 1)), sigma by least squares of N/S - 1 over N - 1. Raises ``ValueError``."""
    excess = _excess(measured)
    sigma = max(0.0, fsum(y * (n - 1) for n, y in excess) / fsum((n - 1) ** 2 for n, _ in excess))
    return lambda count: count / (1 + sigma * (count - 1))


def usl(measured: Mapping[int, float]) -> Law:
    """S(N) = N / (1 + sigma (N - 1) + kappa N (N - 1)), by least squares; one count alone gives Amdahl's law.

    Raises ``ValueError``.
    """
    excess = _excess(measured)
    if len(excess) < 2:  # noqa: PLR2004 - two unknowns
        return amdahl(measured)
    # N/S - 1 over N - 1 is a line in N: sigma + kappa N.
    counts, ratios = [n for n, _ in excess], [y / (n - 1) for n, y in excess]
    mean_n, mean_y = fsum(counts) / len(counts), fsum(ratios) / len(ratios)
    spread = fsum((n - mean_n) ** 2 for n in counts)
    kappa = fsum((n - mean_n) * (y - mean_y) for n, y in zip(counts, ratios, strict=True)) / spread
    sigma = mean_y - kappa * mean_n
    if kappa <= 0:
        return amdahl(measured)
    if sigma < 0:
        sigma, kappa = 0.0, max(0.0, fsum(y * n for n, y in zip(counts, ratios, strict=True)))
        kappa /= fsum(n * n for n in counts)
    return lambda count: count / (1 + sigma * (count - 1) + kappa * count * (count - 1))


def predict(measured: Mapping[int, float], counts: Sequence[int], laws: Sequence[Law] = ()) -> tuple[Prediction, ...]:
    """Speedups over one GPU at ``counts``, from those ``measured`` (by count, above 1) and the caller's ``laws``.

    No law may promise more than the GPUs there are. Raises ``ValueError`` without a measured count above 1.
    """
    every = (amdahl(measured), usl(measured), *laws)
    found = []
    for count in counts:
        speedups = [min(float(count), law(count)) for law in every]
        low, high = min(speedups), max(speedups)
        found.append(Prediction(count, (low + high) / 2, low, high))
    return tuple(found)


def _excess(measured: Mapping[int, float]) -> list[tuple[int, float]]:
    """(N, N/S - 1) for every count above 1."""
    excess = [(count, count / speedup - 1) for count, speedup in sorted(measured.items()) if count > 1]
    if not excess:
        raise ValueError("a law needs a measured speedup of more than one GPU")
    return excess
