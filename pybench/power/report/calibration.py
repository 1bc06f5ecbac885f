"""What a calibration of a power sensor found."""

from __future__ import annotations

from pathlib import Path

from pybench.core.numbers import percent, short_percent
from pybench.power.calibrate import Calibration


def render(calibration: Calibration, path: Path | None) -> str:
    """A block of lines of one GPU."""
    name = calibration.uuid if calibration.index is None else calibration.index
    lines = [f"GPU {name}: {calibration.board}, driver {calibration.driver}"]
    fit = calibration.fit
    if fit is not None:
        response = fit.response
        lines += [
            f"  a reading every  {fit.period_s * 1e3:.1f} ms",
            f"  it averages      {_ms(response.window_s, fit.window_sigma_s)}",
            f"  low-pass         {_ms(response.tau_s, fit.tau_sigma_s)}",
            f"  lag              {_ms(response.lag_s, fit.lag_sigma_s)}",
            f"  load             {response.low_w:.0f} W and {response.high_w:.0f} W",
            f"  readings are off by {percent(response.off_fraction)} of the load's swing",
        ]
    if calibration.model is not None:
        lines.append(f"  sees             {short_percent(calibration.model.seen_fraction)} of the time")
    lines.append(f"  not stored: {calibration.reason}" if path is None else f"  stored in        {path}")
    return "\n".join(lines) + "\n"


def _ms(value_s: float, sigma_s: float | None) -> str:
    doubt = "" if sigma_s is None else f" ± {2 * sigma_s * 1e3:.1f} ms"
    return f"{value_s * 1e3:.1f} ms{doubt}"
