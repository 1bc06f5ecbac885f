"""One row over a series of runs: where it stands and how far nights scatter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from pybench.core.statistics.interval import as_fraction
from pybench.core.statistics.spread import robust_sd
from pybench.model.figures import FigureKey
from pybench.nightly.series import Series

MIN_FOR_SPREAD = 3


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A row's value in each run, the oldest first, ``None`` where it was not measured.

    ``fraction`` is the last value over the median of those before it, less 1; ``spread_fraction`` the robust standard
    deviation between the nights before it, ``None`` with fewer than three.
    """

    row: FigureKey
    values: tuple[float | None, ...]
    fraction: float | None
    spread_fraction: float | None

    @property
    def last(self) -> float | None:
        """That of the last run."""
        return self.values[-1]


def trends(series: Series) -> Iterator[Trend]:
    """The trend of every row."""
    for row in series.rows:
        values = series.values(row)
        earlier = [math.log(value) for value in values[:-1] if value is not None and value > 0]
        last = values[-1]
        yield Trend(
            row=row,
            values=values,
            fraction=as_fraction(math.log(last) - median(earlier))
            if earlier and last is not None and last > 0
            else None,
            spread_fraction=robust_sd(earlier) if len(earlier) >= MIN_FOR_SPREAD else None,
        )
