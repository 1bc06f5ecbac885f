"""Whether GPUs wait in a step that the model does not explain."""

from __future__ import annotations

from pybench.explain.values import ExplainedPoint

# Of the baseline's power, and of a step: four H100s drew up to 11 % less in well predicted steps, which miss by 3 %.
_LESS_POWER = 0.2
_UNEXPLAINED = 0.1


def wait(point: ExplainedPoint) -> str | None:
    """A sentence where a good part of the step is unexplained and GPUs draw much less than the baseline's."""
    less, unexplained_s = point.power_fraction, (point.parts or {}).get("unexplained", 0.0)
    if less is None or less > -_LESS_POWER or unexplained_s < _UNEXPLAINED * point.measured_s:
        return None
    return (
        f"its GPUs draw {point.power_w:.0f} W each, the baseline's {point.baseline_power_w:.0f} W: they wait, for "
        "their CPUs or for each other; a larger batch gives each launch more work"
    )
