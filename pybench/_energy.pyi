from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Numbers: TypeAlias = npt.NDArray[np.float64]
_Spans: TypeAlias = tuple[_Numbers, _Numbers]

def middle_deviation(power_w: _Numbers) -> float: ...
def undone(
    time_s: _Numbers, power_w: _Numbers, noise_w: _Numbers, *, tau_s: float, period_s: float, gap_s: float
) -> tuple[_Numbers, float]: ...
def filtered(
    parts: Sequence[Sequence[_Numbers]],
    belief: _Numbers,
    gain_spread: float,
    step_spread: float,
    beyond_j: _Numbers,
    beyond_j2: _Numbers,
) -> tuple[_Numbers, _Numbers, _Numbers, _Numbers]: ...
def fitting_periods(
    period_s: _Numbers, brackets: _Spans, quiet: _Spans, half_s: float, slack_s: float
) -> tuple[_Numbers, _Numbers, _Numbers]: ...
def published(
    before_s: _Numbers, after_s: _Numbers, firsts: Sequence[int], phase_s: float, period_s: float
) -> _Numbers | None: ...
def interpolated(time_s: _Numbers, columns: Sequence[_Numbers], at_s: _Numbers) -> _Numbers: ...
def within(ends_s: _Numbers, ends: _Numbers, at_s: _Numbers, sums: _Numbers) -> _Numbers: ...
