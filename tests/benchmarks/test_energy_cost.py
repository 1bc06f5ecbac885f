"""A day of recording on eight GPUs, and the cost of the joules of one window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from pybench.power.estimate import attempt_energy
from pybench.power.trace import (
    CounterColumns,
    GpuTrace,
    OffsetColumns,
    PolledColumns,
    PowerTrace,
    SeriesColumns,
    SlowColumns,
)
from tests.physics.board import BOOT_NS, H200, REALTIME_OFFSET_NS, ns, truth_j
from tests.physics.load import Load, constant
from tests.physics.windows import LOADS, LONGEST_LAG_S

DAY_S = 86_400
NUM_GPUS = 8
# More than a day at 400 W, so that no value is below zero.
DAY_MJ = 10**11


def day(load: Load, length_s: float = 1, seed: int = 1, lag_s: float = 0.0) -> PowerTrace:
    """A minute of a load that was really simulated, with a window in it, lies after a day of a constant one."""
    marks_s = (0, length_s)
    board = replace(H200, lag_s=lag_s, _sums={})
    trace = board.trace(load, -20, length_s + 19, np.random.default_rng(seed), marks_s)
    (near,) = trace.gpus
    before_s = np.arange(-DAY_S, -25, 0.02)
    # The counter is read on both sides of some steps in the beginning, and then of one a minute.
    stepped_s = np.concatenate((-DAY_S - np.array([17.8, 17.7, 17.4, 16.5, 13.2, 0]), np.arange(60 - DAY_S, -60, 60.0)))
    read_ns = ns((stepped_s[:, None] + [-0.004, 0.004]).ravel())
    first_ns = int(ns(np.floor(near.counter.before_ns[0] / 1e9 * 10) / 10 - BOOT_NS / 1e9))
    published_ns = ns(np.floor((stepped_s[:, None] + [-0.004, 0.004]).ravel() * 10) / 10)
    counted_mj = near.counter.energy_mj[0] - (first_ns - published_ns) * 400 // 10**6
    polled_ns, slow_ns = ns(before_s[::5]), ns(before_s[::50])
    series = SeriesColumns(
        realtime_ns=np.concatenate((ns(before_s) + REALTIME_OFFSET_NS, near.series.realtime_ns)),  # type: ignore[arg-type]
        power_mw=np.concatenate((np.full(len(before_s), 400_000), near.series.power_mw)),  # type: ignore[arg-type]
    )
    # Columns of NumPy, as the recorder gives them.
    counter = CounterColumns(
        before_ns=np.array([*read_ns, *near.counter.before_ns]),  # type: ignore[arg-type]
        after_ns=np.array([*read_ns, *near.counter.after_ns]),  # type: ignore[arg-type]
        energy_mj=np.array([*counted_mj, *near.counter.energy_mj], dtype=np.uint64) + DAY_MJ,  # type: ignore[arg-type]
    )
    watts = np.full(len(polled_ns), 400_000)
    polled = PolledColumns(t_ns=polled_ns, instant_mw=watts, average_mw=watts, memory_mw=watts)  # type: ignore[arg-type]
    flat = np.zeros(len(slow_ns), dtype=np.int64)
    slow = SlowColumns(t_ns=slow_ns, temperature_c=flat, clock_event_reasons=flat)  # type: ignore[arg-type]
    long = replace(near, counter=counter, series=series, polled=polled, slow=slow)
    gpus: tuple[GpuTrace, ...] = tuple(replace(long, uuid=f"GPU-{index}", index=index) for index in range(NUM_GPUS))
    offset_ns = ns(before_s[::90])
    offsets = OffsetColumns(
        t_ns=offset_ns,  # type: ignore[arg-type]
        realtime_offset_ns=np.full(len(offset_ns), REALTIME_OFFSET_NS),  # type: ignore[arg-type]
        set_by_ns=np.zeros(len(offset_ns), dtype=np.int64),  # type: ignore[arg-type]
    )
    return replace(trace, gpus=gpus, offsets=offsets)


def own_days(load_name: str, length_s: float) -> tuple[PowerTrace, float]:
    """Each GPU with a load, noise and a lag of its own; and the joules of all."""
    loads = [LOADS[load_name](np.random.default_rng(seed), -40, length_s + 24) for seed in range(NUM_GPUS)]
    lags_s = np.random.default_rng(1).uniform(0, LONGEST_LAG_S, NUM_GPUS).tolist()
    days = [day(load, length_s, seed, lag_s) for seed, (load, lag_s) in enumerate(zip(loads, lags_s, strict=True))]
    gpus = tuple(replace(own.gpus[0], uuid=f"GPU-{index}", index=index) for index, own in enumerate(days))
    return replace(days[0], gpus=gpus), sum(truth_j(load, 0, length_s) for load in loads)


@pytest.fixture(scope="module")
def recorded() -> PowerTrace:
    """Made once."""
    return day(constant(400, -30))


@pytest.mark.parametrize(
    ("start_s", "length_s"),
    [(0, 1), (-DAY_S // 2, 1), (-DAY_S // 2, 0.2), (-3600, 3600), (120 - DAY_S, DAY_S - 120)],
    ids=["second", "second of long ago", "fifth of a second of long ago", "hour", "day"],
)
@pytest.mark.timeout(300)
def test_joules_of_a_window_after_a_day(
    benchmark: BenchmarkFixture, recorded: PowerTrace, start_s: float, length_s: float
) -> None:
    """Of all eight GPUs; what is far from the window's ends is not looked at, but for the highest power."""
    start_ns, end_ns = ns([start_s, start_s + length_s]).tolist()
    energy = benchmark(attempt_energy, recorded, start_ns, end_ns, None)
    assert energy.gpus[0].method == "counter+series"
    assert energy.energy_j == pytest.approx(NUM_GPUS * 400 * length_s, rel=3e-2)


@pytest.mark.parametrize("length_s", [0.1, 1, 10])
@pytest.mark.parametrize("load", ["bursty", "generation", "decode_30hz", "square_200_200", "square_50_50"])
@pytest.mark.timeout(300)
def test_joules_of_a_load_that_switches(benchmark: BenchmarkFixture, load: str, length_s: float) -> None:
    """Of all eight GPUs, at the end of a day: more hypotheses are tried there, and fast periods resolved."""
    switching = LOADS[load](np.random.default_rng(1), -40, length_s + 24)
    start_ns, end_ns = ns([0, length_s]).tolist()
    energy = benchmark(attempt_energy, day(switching, length_s), start_ns, end_ns, None)
    assert energy.gpus[0].method == "counter+series"
    assert energy.energy_j == pytest.approx(NUM_GPUS * truth_j(switching, 0, length_s), rel=5e-2)


@pytest.mark.parametrize("length_s", [0.1, 0.2, 1, 10])
@pytest.mark.parametrize(
    "load", ["constant", "square_200_200", "square_50_50", "decode_30hz", "generation", "bursty", "decode_47hz"]
)
@pytest.mark.timeout(300)
def test_joules_of_eight_recordings(benchmark: BenchmarkFixture, load: str, length_s: float) -> None:
    """GPUs that have a recording each leave more periods and hypotheses to try than one recording eight times."""
    trace, true_j = own_days(load, length_s)
    start_ns, end_ns = ns([0, length_s]).tolist()
    energy = benchmark(attempt_energy, trace, start_ns, end_ns, None)
    assert energy.gpus[0].method == "counter+series"
    assert energy.energy_j == pytest.approx(true_j, rel=5e-2)
