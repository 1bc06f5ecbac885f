"""Time of a message as latency plus size over bandwidth.

R. W. Hockney, The communication challenge for MPP, Parallel Computing 20 (1994): t(s) = alpha + beta s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_MIN_SIZES = 2


@dataclass(frozen=True)
class AlphaBeta:
    """``alpha_s`` seconds and ``beta_s_per_byte`` seconds for each byte; ``misfit_fraction`` is the worst size's."""

    alpha_s: float
    beta_s_per_byte: float
    misfit_fraction: float = 0.0

    def time_s(self, num_bytes: float) -> float:
        """Seconds that a message of this size takes."""
        return self.alpha_s + self.beta_s_per_byte * num_bytes

    def at(self, operation: str, count: int, wanted: int, *, tree: bool) -> AlphaBeta:
        """The same links with ``wanted`` ranks instead of the ``count`` that were measured.

        Bandwidth follows the bytes that each rank must send (nccl-tests, doc/PERFORMANCE.md), latency the number of
        steps: n - 1 in a ring, log2 n in a tree (Thakur, Rabenseifner, Gropp, Optimization of Collective Communication
        Operations in MPICH, IJHPCA 19(1), 2005).
        """
        steps = math.log2(wanted) / math.log2(count) if tree else (wanted - 1) / (count - 1)
        sent = 1.0 if operation == "broadcast" else (1 - 1 / wanted) / (1 - 1 / count)
        return AlphaBeta(self.alpha_s * steps, self.beta_s_per_byte * sent, self.misfit_fraction)


def fit(curve: Sequence[tuple[float, float]]) -> AlphaBeta:
    """Least squares of the relative error over (bytes, seconds), with neither latency nor bandwidth below 0.

    Relative, so that the small sizes, which alone show the latency, count as much as the large ones. Raises
    ``ValueError`` with fewer than two sizes or a time that is not positive.
    """
    if len({size for size, _ in curve}) < _MIN_SIZES or any(time_s <= 0 for _, time_s in curve):
        raise ValueError(f"a fit needs times of two sizes, found {list(curve)}")
    # Columns of the design matrix, each row divided by its time: a + b s / t should be 1.
    ones, sizes = [1 / t for _, t in curve], [s / t for s, t in curve]
    aa, ab, bb = _dot(ones, ones), _dot(ones, sizes), _dot(sizes, sizes)
    a, b = sum(ones), sum(sizes)
    determinant = aa * bb - ab * ab
    alpha, beta = (a * bb - b * ab) / determinant, (b * aa - a * ab) / determinant
    if alpha < 0:
        alpha, beta = 0.0, b / bb
    elif beta < 0:
        alpha, beta = a / aa, 0.0
    misfit = max(abs((alpha + beta * size) / time_s - 1) for size, time_s in curve)
    return AlphaBeta(alpha, beta, misfit)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(left, right, strict=True))
