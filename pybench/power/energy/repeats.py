"""How the samples of a power repeat after a whole number of them.

Where a load keeps step with its samples, they miss the same of it in each repetition: doubts about the cells between
samples add up, instead of growing by the root of their number. Trends are no repetition, though slow samples are alike
whatever the distance: so the changes from sample to sample must repeat as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from pybench.power.energy.times import Column

# Loads in step with the samples repeat after this many of them, in long windows also after more; autocorrelation that
# chance or noise leaves.
LEAST_REPEAT, MOST_REPEAT = 2, 60
MIN_REPEATED = 20
CHANCE_REPEAT, SURE_REPEAT = 0.5, 0.9
# Changes are alike for as long as their autocorrelation is no less than this. After more samples than the second a
# repetition adds too little.
LEAST_ALIKE, LONGEST_SHARED = 0.1, 8
# Periods of samples, 20 ms each: nearly a day. Where they are more, most samples are missing.
MOST_PLACES = 2**22


@dataclass(frozen=True)
class Repeats:
    """How samples repeat.

    ``in_step`` is 1 for a load that keeps step with them throughout, 0 for one that does not. ``shared_fraction`` is
    the variance that doubts of cells add to their sum by being alike, over the sum of their own variances.
    """

    in_step: float
    shared_fraction: float

    @classmethod
    def of(cls, time_s: Column, power_w: Column, period_s: float, most_repeat: int) -> Self:
        """Of two samples or more; repetitions of up to ``most_repeat`` of them are looked for."""
        farthest = 2 * most_repeat
        # No repetition reaches over a longer gap, whatever its length.
        apart = np.minimum(np.diff(np.rint((time_s - time_s[0]) / period_s)), farthest + 1)
        number = np.concatenate(([0], np.cumsum(apart.astype(np.intp))))
        if number[-1] > MOST_PLACES:
            return cls(0.0, 0.0)
        samples = _autocorrelation(number, power_w, farthest)
        changes = _autocorrelation(number[1:], power_w[1:] - power_w[:-1], farthest)
        return cls(min(_in_step(samples, most_repeat), _in_step(changes, most_repeat)), _shared_fraction(changes))


def _autocorrelation(number: npt.NDArray[np.intp], values: Column, farthest: int) -> Column:
    """Of values at these places, up to a distance: 0 where too few are so far apart, or where none varies."""
    columns = np.zeros((2, 1 << (int(number[-1]) + farthest).bit_length()))
    columns[0, number], columns[1, number] = values - values.mean(), 1.0
    waves = np.fft.rfft(columns)
    sums, pairs = np.fft.irfft(waves.real**2 + waves.imag**2)[:, : farthest + 1]
    alike = np.where(np.rint(pairs) >= MIN_REPEATED, sums / np.maximum(pairs, 1.0), 0.0)
    return alike / alike[0] if alike[0] > 0 else np.zeros_like(alike)


def _in_step(alike: Column, most_repeat: int) -> float:
    """From an autocorrelation, at twice a distance too, since one repetition may be chance."""
    after = np.arange(LEAST_REPEAT, most_repeat + 1)
    best = float(np.minimum(alike[after], alike[2 * after]).max())
    return min(max((best - CHANCE_REPEAT) / (SURE_REPEAT - CHANCE_REPEAT), 0.0), 1.0)


def _shared_fraction(alike: Column) -> float:
    """The largest over cycles of some samples, from the autocorrelation of their changes.

    Over a cycle of ``n`` cells doubts cancel but for their ``n``-th harmonic. Beside ``n`` doubts at any phase its
    variance is ``1/n`` where doubts jump with the load's phase, ``1/n³`` where they are continuous; ``1/n²`` is taken.
    As many cycles share it as follow each other alike.
    """
    found = []
    for num in range(LEAST_REPEAT, LONGEST_SHARED + 1):
        cycles = alike[num::num]
        following = cycles[np.logical_and.accumulate(cycles >= LEAST_ALIKE)]
        found.append(2 * float(np.minimum(following, 1.0).sum()) / num**2)
    return max(found)
