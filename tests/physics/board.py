"""What a board's sensors make of a load, and what a sampler reads from them: the physics measured on an H200.

The counter integrates truly and publishes on a fixed grid, as of some time before. The driver's series is the load
behind a first-order low-pass, at a jittered spacing and in coarse steps. Polled fields come at their own wandering
pace. Reads take their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pybench.power.sensor import shipped_model
from pybench.power.trace import (
    MISSING,
    CounterColumns,
    GpuTrace,
    OffsetColumns,
    PolledColumns,
    PowerTrace,
    SeriesColumns,
)
from tests.physics.load import Load
from tests.physics.step_search import StepSearch

# Days since boot, and a wall clock of 2026: more digits than a float has.
BOOT_NS = 10**15
REALTIME_OFFSET_NS = 1_790_000_000 * 10**9
COUNTER_BASE_MJ = 5_000_000_000
# Read latency: 2.8 ms in the middle and 16 ms at the 99th percentile, log-normal.
LATENCY_S = 2.8e-3
LATENCY_SIGMA = float(np.log(16 / 2.8)) / 2.326
KEEP_S = 60.0
BUFFER_DEPTH = 120
# The sampler polls seldom where the series has samples less far apart than its polls.
POLLED_S, POLLED_BESIDE_SERIES_S = 0.1, 1.0
# After a step of the counter the sampler waits for the series' next sample.
NEXT_SAMPLE_S = 45e-3


@dataclass(frozen=True, kw_only=True)
class Board:
    """One board's sensors. ``lag_s``: a value published at ``t`` is the energy at ``t - lag_s``.

    ``astray_s``: how far one publication in twenty is off its grid. ``counter_sample_s``: a counter that adds up
    readings of the mean power of the ``window_s`` before them, or of the power behind the low-pass, each for this
    long; ``None`` for one that integrates truly. ``noise_fraction`` is white noise of the series, ``own_fraction``
    that of the load, which the series shows behind its low-pass.
    """

    name: str = "NVIDIA H200"
    driver: str = "580.00"
    counter_sample_s: float | None = None
    window_s: float = 0.0
    noise_fraction: float = 0.0
    own_fraction: float = 0.0
    has_counter: bool = True
    has_series: bool = True
    has_instant: bool = True
    counter_period_s: float = 0.100
    counter_phase_s: float = 0.0
    lag_s: float = 0.0
    astray_s: float = 0.0
    tau_s: float = 10.9e-3
    sample_period_s: float = 0.020
    power_step_w: float = 0.323
    missing_fraction: float = 0.01
    _sums: dict[int, float] = field(default_factory=dict, repr=False, compare=False)

    def trace(
        self, load: Load, start_s: float, end_s: float, rng: np.random.Generator, marks_s: Sequence[float] = ()
    ) -> PowerTrace:
        """What a sampler has read that was started and stopped at these times, and asked for anchors between."""
        counter, done_s = self._counter(load, start_s, (*marks_s, end_s), rng)
        series = self._series(load, start_s, done_s, rng)
        gpu = GpuTrace(
            uuid="GPU-0",
            index=0,
            name=self.name,
            sensor=shipped_model(self.name, self.driver),
            counter=counter if self.has_counter else CounterColumns(),
            series=series if self.has_series else SeriesColumns(),
            polled=self._polled(load, start_s, done_s, rng),
        )
        offsets = OffsetColumns(
            t_ns=ns([start_s, done_s]).tolist(), realtime_offset_ns=[REALTIME_OFFSET_NS] * 2, set_by_ns=[0, 0]
        )
        return PowerTrace(start_ns=int(ns(start_s)), end_ns=int(ns(done_s)), gpus=(gpu,), offsets=offsets)

    def _counter(
        self, load: Load, start_s: float, asked_s: Sequence[float], rng: np.random.Generator
    ) -> tuple[CounterColumns, float]:
        """Two steps of the counter hunted at the start, then one past each moment asked for."""
        reads: list[tuple[float, float, int]] = []

        def read(at_s: float) -> tuple[float, int]:
            latency_s = LATENCY_S * float(np.exp(LATENCY_SIGMA * rng.standard_normal()))
            energy_mj = self.published_mj(load, at_s + rng.random() * latency_s)
            reads.append((at_s, at_s + latency_s, energy_mj))
            return at_s + latency_s, energy_mj

        search = StepSearch(read)
        now_s = search.find_grid(start_s)
        for at_s in asked_s:
            now_s = search.keep(now_s, at_s, KEEP_S)
            now_s = search.catch(max(now_s, at_s))
        before_s, after_s, energy_mj = zip(*reads, strict=True)
        return CounterColumns(
            before_ns=ns(before_s).tolist(), after_ns=ns(after_s).tolist(), energy_mj=energy_mj
        ), now_s + NEXT_SAMPLE_S

    def published_mj(self, load: Load, at_s: float) -> int:
        """What the counter holds at a moment."""
        number = int(np.floor((at_s - self.counter_phase_s) / self.counter_period_s)) + 1
        while (published_s := self._publication_s(number)) > at_s:
            number -= 1
        return COUNTER_BASE_MJ + int(self._counted_j(load, published_s - self.lag_s) * 1e3)

    def _counted_j(self, load: Load, at_s: float) -> float:
        """What the counter has added up by then: the load's joules, or its own readings', each for their period."""
        if self.counter_sample_s is None:
            return float(load.energy_j(at_s))
        last = int(np.floor(at_s / self.counter_sample_s))
        if last not in self._sums:
            first = max((k for k in self._sums if k < last), default=None)
            begun = int(np.floor(float(load.edge_s[0]) / self.counter_sample_s)) if first is None else first
            times_s = np.arange(begun, last, dtype=np.float64) * self.counter_sample_s
            since_j = float(np.sum(self.reading_w(load, times_s))) * self.counter_sample_s
            self._sums[last] = since_j + (0.0 if first is None else self._sums[first])
        return self._sums[last] + float(self.reading_w(load, np.array([last * self.counter_sample_s]))[0]) * (
            at_s - last * self.counter_sample_s
        )

    def reading_w(self, load: Load, time_s: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """What the sensor shows at each time: the mean of its window, or the power behind its low-pass."""
        if self.window_s > 0:
            return np.asarray(
                (load.energy_j(time_s) - load.energy_j(np.asarray(time_s) - self.window_s)) / self.window_s
            )
        return load.low_pass_w(time_s, self.tau_s)

    def _publication_s(self, number: int) -> float:
        off_s = 0.0 if number % 20 else self.astray_s * (1 if number % 40 else -1)
        return self.counter_phase_s + number * self.counter_period_s + off_s

    def _series(self, load: Load, start_s: float, end_s: float, rng: np.random.Generator) -> SeriesColumns:
        """Spacing of 6 to 45 ms around the period: mostly tight, now and then late, now and then missing."""
        first_s = start_s - BUFFER_DEPTH * self.sample_period_s
        grid_s = np.arange(first_s + rng.random() * self.sample_period_s, end_s, self.sample_period_s)
        late_s = np.where(rng.random(len(grid_s)) < 0.04, rng.uniform(3e-3, 14e-3, len(grid_s)), 0.0)
        time_s = np.sort(grid_s + rng.normal(0.0, 0.5e-3, len(grid_s)) + late_s)
        time_s = time_s[(rng.random(len(time_s)) >= self.missing_fraction) & (time_s <= end_s)]
        noisy_w = self.reading_w(load, time_s) * (1 + self.noise_fraction * rng.standard_normal(len(time_s)))
        power_w = np.round(noisy_w / self.power_step_w) * self.power_step_w
        stamps_us = (ns(time_s) + REALTIME_OFFSET_NS) // 1000
        return SeriesColumns(realtime_ns=(stamps_us * 1000).tolist(), power_mw=milli(power_w))

    def _polled(self, load: Load, start_s: float, end_s: float, rng: np.random.Generator) -> PolledColumns:
        """Refreshed about every 102 ms with a wandering phase; 186 is near-instant, 185 the mean of a second."""
        refresh_s = start_s - 1 + np.cumsum(rng.normal(0.102, 2e-3, int((end_s - start_s + 2) / 0.09)))
        beside_series = self.has_series and self.sample_period_s < POLLED_S
        time_s = np.arange(start_s, end_s, POLLED_BESIDE_SERIES_S if beside_series else POLLED_S)
        newest_s = refresh_s[np.searchsorted(refresh_s, time_s, side="right") - 1]
        average_w = load.energy_j(newest_s) - load.energy_j(newest_s - 1)
        return PolledColumns(
            t_ns=ns(time_s).tolist(),
            instant_mw=milli(self.reading_w(load, newest_s)) if self.has_instant else [MISSING] * len(time_s),
            average_mw=milli(average_w),
            memory_mw=[48_000] * len(time_s),
        )


H200 = Board(counter_sample_s=0.020, noise_fraction=0.024, astray_s=2.5e-3)
A100 = Board(
    name="NVIDIA A100-SXM4-80GB",
    counter_period_s=0.101,
    counter_sample_s=0.101,
    sample_period_s=0.101,
    window_s=0.025,
)
BOARDS = {
    "H200": H200,
    "H200, noisy load": replace(H200, own_fraction=0.024, noise_fraction=0.0),
    "H200, copies": replace(H200, own_fraction=0.003, noise_fraction=0.0),
    "H200 quiet": Board(),
    "H100 PCIe": replace(
        A100, name="NVIDIA H100 PCIe", counter_period_s=0.1, counter_sample_s=0.1, sample_period_s=0.1
    ),
    "A100": A100,
    "V100": Board(
        name="Tesla V100-SXM2-32GB", counter_period_s=0.02, counter_sample_s=0.02, sample_period_s=0.02, window_s=0.01
    ),
    "RTX 4090": Board(
        name="NVIDIA GeForce RTX 4090", counter_period_s=0.1, counter_sample_s=0.1, sample_period_s=0.1, window_s=0.1
    ),
    "polled only": Board(name="Some GPU", has_counter=False, has_series=False, has_instant=False),
}


def ns(time_s: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """CLOCK_MONOTONIC nanoseconds of seconds of the simulation."""
    return np.asarray(np.round(np.asarray(time_s) * 1e9), dtype=np.int64) + BOOT_NS


def milli(values: npt.NDArray[np.float64]) -> list[int]:
    """Whole thousandths, as NVML tells them."""
    return [int(value) for value in np.round(values * 1e3)]


def truth_j(load: Load, start_s: float, end_s: float) -> float:
    """What an ideal meter shows for the window."""
    low, high = load.energy_j([start_s, end_s])
    return float(high - low)
