"""What a user writes: type checkers accept it, and report each planted mistake below.

mypy reads this file with the others (an ignore that hides no error is an error itself), and so does pyright in CI.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

import pybench
from pybench import PowerSampler

with pybench.PowerSampler(required=False) as power:
    with power.window("train") as window:
        print(sum(range(100)))
    joules: float | None = window.energy().energy_low_j
    print(power.energy("train"), joules, pybench.__version__)


def mistakes() -> None:
    """Each line has one."""
    PowerSampler(required=False, devices="x")  # type: ignore[call-arg]
    power.energi("train")  # type: ignore[attr-defined]
    _text: str = power.energy("train").energy_j  # type: ignore[assignment]
    pybench.Sampler()  # type: ignore[attr-defined]
