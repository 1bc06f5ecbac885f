"""What a board's power readings average over, and how well that is known."""

from __future__ import annotations

from dataclasses import dataclass

# A mean over more hides steps that the estimate would place.
LONGEST_WINDOW_S = 0.030


@dataclass(frozen=True, kw_only=True)
class SensorModel:
    """Sensor of one kind of board.

    Every ``period_s`` the sensor takes one value: the mean power of the ``window_s`` before it, behind a first-order
    low-pass of ``tau_s``, known to within ``tau_sigma_s``. Where ``window_s`` is shorter than ``period_s`` the power
    between is never seen, unless the low-pass carries it over. The energy counter adds such values up, each for one
    period, and publishes a sum of ``lag_low_s`` to ``lag_high_s`` before. The polled average trails by
    ``average_span_s``. ``source`` names the measurement; a model that is not ``calibrated`` was not measured on this
    kind of board by pybench.
    """

    name: str
    source: str
    calibrated: bool = False
    period_s: float
    window_s: float
    tau_s: float = 0.0
    tau_sigma_s: float = 0.0
    lag_low_s: float = -0.02
    lag_high_s: float = 0.06
    average_span_s: float = 1.0

    @property
    def seen_fraction(self) -> float:
        """Part of the time in which the sensor sees the power; a low-pass as long as half a period bridges the rest."""
        if self.tau_s >= self.period_s / 2:
            return 1.0
        return min(1.0, self.window_s / self.period_s)

    @property
    def resolves(self) -> bool:
        """Whether its readings show the load's shape: it was measured, misses nothing, averages over no long span."""
        return self.calibrated and self.seen_fraction >= 1 and self.window_s <= LONGEST_WINDOW_S

    @property
    def blur_s(self) -> float:
        """How far in time a reading may lie from the power that it shows."""
        return max(self.window_s, self.tau_s) + self.period_s / 2


UNKNOWN_SENSOR = SensorModel(
    name="unknown board",
    source="nothing is known of its sensor: the slowest and least attentive one published is assumed",
    period_s=0.100,
    window_s=0.020,
    lag_high_s=0.150,
)
