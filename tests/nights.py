"""A seeded simulator of nights with known changes, for tests of the gate.

A value is exp(level + night + attempt): ``night_sd`` is the spread between nights that the attempts of a night share,
``attempt_sd`` that between attempts. On top of it nights may have one bad attempt at a point, a host that is off, a
drift, a step, and points that vanish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pybench.model.figures import PointFigures, RunFigures
from pybench.model.suite import AxisValue
from pybench.nightly.history import Series

METRICS = ("output_tokens_per_s", "energy_j_per_output_token")
_WORSE = np.array([-1.0, 1.0])
_FIRST = date(2026, 1, 1)

Kind = Literal[
    "normal", "heavy tails", "correlation 0.3", "correlation 0.6", "weekly wave of 1 %", "slow random walk",
    "spread triples", "one night in ten 3 % off", "metrics move together",
]  # fmt: skip
"""How nights scatter: independent and normal. Student's t with three degrees of freedom. Correlated with the night
before. A sine. A walk of a tenth of the spread a night. From half the spread to 1.5 times. A second speed of whole
nights, by row. Equal errors of a point's speed and energy."""


def scatter(kind: Kind, random: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """By night, point and metric, in standard deviations, which are taken as 0.7 % for the kinds that name per cent."""
    values = random.standard_normal(shape)
    nights = np.arange(shape[0])[:, None, None]
    if kind == "heavy tails":
        return random.standard_t(3, shape) / math.sqrt(3)
    if kind.startswith("correlation"):
        correlation = float(kind.split()[1])
        for night in range(1, shape[0]):
            fresh = math.sqrt(1 - correlation**2) * values[night]
            values[night] = correlation * values[night - 1] + fresh
    elif kind == "weekly wave of 1 %":
        values += 0.01 / 0.007 * np.sin(2 * np.pi * nights / 7) * random.choice([-1, 1], shape[1:])
    elif kind == "slow random walk":
        values += np.cumsum(0.1 * random.standard_normal(shape), axis=0)
    elif kind == "spread triples":
        values *= 0.5 + nights / (shape[0] - 1)
    elif kind == "one night in ten 3 % off":
        values += (random.random(shape[:2]) < 0.1)[..., None] * 0.03 / 0.007 * _WORSE
    elif kind == "metrics move together":
        values[..., 1] = -values[..., 0]
    return values


Slower = Callable[[int, int], float]
"""Of a point and a night: how much worse its rows are, a logarithm; positive is worse."""


def silent(run: RunFigures) -> RunFigures:
    """The run, had it measured nothing."""
    return replace(run, points=tuple(replace(point, medians={}) for point in run.points))


def nothing(_point: int, _night: int) -> float:
    """No change."""
    return 0.0


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """One machine's nights: 20 points with a speed and an energy each are 40 rows.

    ``night_sds`` are the least and greatest spread between nights, drawn for each row evenly on a log scale. A share
    ``bad_attempts`` of attempts is slower by 5 % on average, a share ``bad_nights`` of nights has the host off by 2 %.
    ``second_speed`` is the share of attempts that are slower, and by how much (negative is faster), of the first
    ``num_second_speed`` points. ``kind`` is how nights scatter.
    """

    night_sds: tuple[float, float] = (0.003, 0.02)
    attempt_sd: float = 0.003
    bad_attempts: float = 0.02
    bad_nights: float = 0.03
    num_points: int = 20
    num_attempts: int = 3
    slower: Slower = field(default=nothing)
    second_speed: tuple[float, float] = (0.0, 0.0)
    num_second_speed: int = 1
    kind: Kind = "normal"

    def series(self, random: np.random.Generator, num_nights: int, *, vanished: Sequence[int] = ()) -> Series:
        """So many nights, and one more that is judged, on which ``vanished`` points are absent; it has no bad host."""
        return self.series_with_reruns(random, num_nights, vanished=vanished)[0]

    def series_with_reruns(
        self, random: np.random.Generator, num_nights: int, num_reruns: int = 1, *, vanished: Sequence[int] = ()
    ) -> tuple[Series, tuple[RunFigures, ...]]:
        """The same, and reruns of the last nights: attempts are new, what the night did to a row is the same."""
        low, high = np.log(self.night_sds)
        sds = np.exp(random.uniform(low, high, (self.num_points, len(METRICS))))
        levels = random.uniform(0, 5, (self.num_points, len(METRICS)))
        offsets = None if self.kind == "normal" else scatter(self.kind, random, (num_nights + 1, *sds.shape))
        runs, reruns = [], []
        for night in range(num_nights + 1):
            is_bad = night < num_nights and random.random() < self.bad_nights
            host = 0.02 * random.standard_normal() if is_bad else 0.0
            gone = set(vanished) if night == num_nights else set()
            drawn = random.standard_normal(sds.shape) if offsets is None else offsets[night]
            values = levels + sds * drawn + host * _WORSE
            runs.append(self._run(random, night, values, gone))
            if night > num_nights - num_reruns:
                reruns.append(self._run(random, night, values, gone))
        return Series(tuple(runs)), tuple(reruns)

    def _run(self, random: np.random.Generator, night: int, values: NDArray[np.float64], gone: set[int]) -> RunFigures:
        when = (_FIRST + timedelta(days=night)).isoformat()
        points = (
            self._point(random, point, night, values[point]) for point in range(self.num_points) if point not in gone
        )
        return RunFigures(
            run_id=when, created_utc=f"{when}T03:00:00+00:00", suite="s", verdict="pass", keys={}, points=tuple(points)
        )

    def _point(self, random: np.random.Generator, point: int, night: int, values: NDArray[np.float64]) -> PointFigures:
        num = self.num_attempts
        bad = (random.random(num) < self.bad_attempts) * random.exponential(0.05, num) + self.slower(point, night)
        share, size = self.second_speed
        if share and point < self.num_second_speed:
            bad = bad + (random.random(num) < share) * size
        attempts = (
            values[:, None] + self.attempt_sd * random.standard_normal((len(METRICS), num)) + bad * _WORSE[:, None]
        )
        medians = {name: tuple(np.exp(own).tolist()) for name, own in zip(METRICS, attempts, strict=True)}
        axes: dict[str, AxisValue] = {"point": point}
        return PointFigures(id=f"p{point}", benchmark="p", axes=axes, num_gpus=1, digest="d", medians=medians)
