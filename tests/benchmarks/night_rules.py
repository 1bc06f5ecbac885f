"""Rules of other tools that tell from one row's nights, the last one being tonight, whether it fell.

Values are logarithms, higher is better. A rule is red while the last seven nights have the fall. Apache Otava, ruptures
and asv decide by their packages; Bencher, Conbench and github-action-benchmark have none, so their documented rule is
written here with its default limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import ruptures
from asv.step_detect import detect_regressions, detect_steps
from otava.analysis import compute_change_points
from scipy import stats

RECENT = 7
"""A change stays red for this number of nights."""
SMALLEST = 0.02
_BENCHER_NIGHTS, _CONBENCH_NIGHTS = 64, 100

Values = Sequence[float]
Rule = Callable[[Values], bool]


def otava_changes(values: Values, p_value: float = 0.001) -> list[tuple[int, float]]:
    """Place and size of each change by E-divisive, with a t-test."""
    found, _ = compute_change_points(np.exp(np.asarray(values)).tolist(), window_len=50, max_pvalue=p_value)
    return [(change.index, math.log(change.stats.mean_2 / change.stats.mean_1)) for change in found]


def pelt_changes(values: Values, least_nights: int = 2, penalty: float = 6) -> list[tuple[int, float]]:
    """The same by PELT on values over their spread from night to night; a penalty of 6 log(n) is twice that of BIC."""
    series = np.asarray(values)
    sd = 1.4826 / math.sqrt(2) * float(np.median(np.abs(np.diff(series)))) or 1e-4
    ends = (
        ruptures.KernelCPD(kernel="linear", min_size=least_nights)
        .fit(series[:, None] / sd)
        .predict(pen=penalty * math.log(len(series)))
    )
    parts = np.split(series, ends[:-1])
    return [
        (end, float(after.mean() - before.mean())) for end, before, after in zip(ends, parts, parts[1:], strict=False)
    ]


def _recent_fall(changes: Sequence[tuple[int, float]], num: int) -> bool:
    return any(place >= num - RECENT and size <= -SMALLEST for place, size in changes)


def _bencher(values: Values, level: float = 0.99) -> bool:
    """Below Student's t boundary of 0.99 of up to 64 nights."""
    before = np.exp(np.asarray(values[:-1][-_BENCHER_NIGHTS:]))
    return bool(math.exp(values[-1]) < before.mean() - stats.t.ppf(level, len(before) - 1) * before.std(ddof=1))


def _conbench(values: Values) -> bool:
    """Five standard deviations below the mean of up to 100 nights."""
    before = np.exp(np.asarray(values[:-1][-_CONBENCH_NIGHTS:]))
    return bool(math.exp(values[-1]) < before.mean() - 5 * before.std(ddof=1))


def _asv(values: Values) -> bool:
    """A step of 5 % for the worse among steps of the times."""
    times = np.exp(-np.asarray(values)).tolist()
    _, _, places = detect_regressions(detect_steps(times), threshold=0.05)
    return any(place is not None and right >= len(values) - RECENT for place, right, *_ in places or ())


RULES: dict[str, Rule] = {
    "Apache Otava, p 0.001": lambda values: _recent_fall(otava_changes(values), len(values)),
    "ruptures PELT": lambda values: _recent_fall(pelt_changes(values), len(values)),
    "Bencher, t-test 0.99": _bencher,
    "Conbench, z 5": _conbench,
    "asv, step of 5 %": _asv,
    "github-action-benchmark, 200 %": lambda values: values[-2] - values[-1] > math.log(2),
}
"""The name of each tool and its limit name a rule."""

FRONTIER: dict[str, Rule] = {
    **{
        f"Apache Otava, p {p:g}": lambda values, p=p: _recent_fall(otava_changes(values, p), len(values))  # type: ignore[misc]
        for p in (1e-3, 1e-4, 1e-5)
    },
    **{
        f"ruptures PELT, penalty {penalty} log(n)": lambda values, penalty=penalty: _recent_fall(  # type: ignore[misc]
            pelt_changes(values, penalty=penalty), len(values)
        )
        for penalty in (6, 12, 24, 48)
    },
    **{
        f"Bencher, t-test {level:g}": lambda values, level=level: _bencher(values, level)  # type: ignore[misc]
        for level in (0.99, 0.999, 0.9999, 0.99999)
    },
}
"""The three with a threshold of their own, at several of it."""
