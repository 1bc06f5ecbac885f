"""Loads in step with a sensor's sampling, by their period and by when they began."""

from __future__ import annotations

import pytest

from pybench.power.estimate import attempt_energy
from pybench.power.in_step import LoadPeriods, alias_fraction, locked_fraction
from pybench.worker.timing import Dither
from tests.power.test_energy import BOOT_NS, MS, READS_MS, constant, counter, energy, gpu, half_width_j, series, trace

PERIOD_S = 0.020


@pytest.mark.parametrize(
    ("period_s", "fraction"),
    [
        *((period_s, 0.26) for period_s in (0.020, 0.0185, 0.0215)),
        *((period_s, 0.09) for period_s in (0.010, 0.0067, 0.005)),
        *((0.060, 0.078), (0.0595, 0.078), (0.050, 0.049), (0.025, 0.028), (0.0333, 0.027), (0.100, 0.024)),
        *((0.040, 0.153), (0.0133, 0.049), (0.080, 0.050), (0.120, 0.037), (0.140, 0.027), (0.030, 0.026)),
    ],
)
def test_alias_risk(period_s: float, fraction: float) -> None:
    """Periods with an error of an H200's counter, and the error; 400 J in total."""
    found = energy(gpu(counter(constant(400), READS_MS), series(lambda _: 400)), period_s=period_s)
    assert found.flags == ("alias_risk",)
    assert half_width_j(found) == pytest.approx(fraction * 400, abs=3.0)


@pytest.mark.parametrize("period_s", [None, 0.041, 0.082, 0.0137, 0.0275, 0.0155, 0.0125, 0.008, 0.0059, 0.001, 1.0])
def test_no_alias_risk(period_s: float | None) -> None:
    found = energy(gpu(counter(constant(400), READS_MS), series(lambda _: 400)), period_s=period_s)
    assert found.flags == ()
    assert half_width_j(found) <= 3.0


@pytest.mark.parametrize(("seen_s", "fraction"), [(None, 0.26), (0.0201, 0.26), (0.0125, 0.0), (0.040, 0.09)])
def test_a_sensor_of_another_period(seen_s: float | None, fraction: float) -> None:
    """20 ms where unknown; whole ms where stamps jitter; half of 40 ms is its harmonic, and 12.5 ms no whole ms."""
    assert alias_fraction(LoadPeriods((PERIOD_S,)), seen_s) == fraction
    assert alias_fraction(LoadPeriods((0.0125,)), 0.0125) == 0.26


@pytest.mark.parametrize(
    ("apart_ms", "expected"),
    [(20, 1.0), (10, 1.0), (5, 1.0), (60, 1.0), (25, 1.0), (4, 0.0), (24, 0.0), (16, 0.0)],
)
def test_locked_fraction(apart_ms: int, expected: float) -> None:
    """100 beginnings: at one phase of the sensor or of a harmonic, or at five phases alike."""
    begins_ns = [BOOT_NS + number * apart_ms * MS for number in range(100)]
    assert locked_fraction(begins_ns, PERIOD_S) == pytest.approx(expected, abs=1e-9)


def test_begun_once_or_at_unknown_times_is_in_step() -> None:
    assert locked_fraction([], PERIOD_S) == 1.0
    assert locked_fraction([BOOT_NS], PERIOD_S) == 1.0
    # Three beginnings 4 ms apart: |1 + exp(0.4πi) + exp(0.8πi)| / 3.
    assert locked_fraction([0, 4 * MS, 8 * MS], PERIOD_S) == pytest.approx(0.5393, abs=1e-4)


def test_only_what_began_within_the_window_counts() -> None:
    """In step for 0.5 s, then at five phases alike."""
    begins_ns = [BOOT_NS + at_ms * MS for at_ms in (*range(0, 500, 20), *range(504, 1000, 24))]
    rhythm = LoadPeriods((PERIOD_S,), begins_ns)
    one = trace(gpu(counter(constant(400), READS_MS), series(lambda _: 400)))
    (locked,) = attempt_energy(one, BOOT_NS, BOOT_NS + 490 * MS, rhythm).gpus
    (spread,) = attempt_energy(one, BOOT_NS + 504 * MS, BOOT_NS + 970 * MS, rhythm).gpus
    assert locked.flags == ("alias_risk",)
    assert spread.flags == ()


def test_a_gpu_whose_power_hardly_moves_is_hardly_off() -> None:
    """By hand: phases locked by 0.5393, and samples that deviate by 0.1 %: 1.25 √2 x 0.001 x 0.5393 / (1 - 0.5393²)."""
    rhythm = LoadPeriods((PERIOD_S,), [0, 4 * MS, 8 * MS])
    assert alias_fraction(rhythm, PERIOD_S, 1e-3) == pytest.approx(1.3446e-3, rel=1e-4)
    assert alias_fraction(rhythm, PERIOD_S, 0.5) == pytest.approx(0.26 * 0.5393, rel=1e-4)
    assert alias_fraction(LoadPeriods((PERIOD_S,)), PERIOD_S, 1e-3) == 0.26


def test_an_idle_gpu_beside_decode_rounds_is_not_flagged() -> None:
    """Rounds of 19.8 ms go through half of the phases in a second; GPUs without layers had ± 2.6 % and the flag."""
    rhythm = LoadPeriods((0.0198,), [BOOT_NS + round(19.8 * number * MS) for number in range(51)])
    idle = gpu(counter(constant(128), READS_MS), series(lambda at_ms: 128 + at_ms // 20 % 2))
    works = gpu(counter(constant(400), READS_MS), series(lambda at_ms: 300 + 200 * (at_ms // 20 % 2)))
    found, busy = attempt_energy(trace(idle, works), BOOT_NS, BOOT_NS + 1000 * MS, rhythm).gpus
    assert found.flags == ()
    assert half_width_j(found) <= 0.02 * 128
    assert "alias_risk" in busy.flags


def dithered_ns(num_steps: int, dither_ms: float) -> list[int]:
    """When steps of 20 ms begin."""
    dither, now_ns, begins_ns = Dither(dither_ms * 1e6, num_steps), BOOT_NS + 7 * MS, []
    for _ in range(num_steps):
        now_ns += round(dither.pause_ns(now_ns))
        dither.begun(now_ns)
        begins_ns.append(now_ns)
        now_ns += 20 * MS
    return begins_ns


@pytest.mark.parametrize("num_steps", [5, 10, 20, 40, 600])
def test_dithered_steps_are_out_of_step(num_steps: int) -> None:
    assert alias_fraction(LoadPeriods((PERIOD_S,), dithered_ns(num_steps, 20)), PERIOD_S) < 0.005


@pytest.mark.parametrize(
    ("num_steps", "dither_ms"), [(3, 20), (10, 1), (10, 8), (17, 320), (997, 320), (5, 1), (40, 1), (40, 8)]
)
def test_too_few_steps_and_other_periods_stay_in_step(num_steps: int, dither_ms: float) -> None:
    assert alias_fraction(LoadPeriods((PERIOD_S,), dithered_ns(num_steps, dither_ms)), PERIOD_S) > 0.1
