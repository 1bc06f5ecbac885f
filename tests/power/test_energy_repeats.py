"""How samples of a load repeat, and what that makes of joules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from pybench.power.energy.curve import ENDS_ALIKE, Curve
from pybench.power.energy.low_pass import LowPass, undo
from pybench.power.energy.repeats import Repeats
from pybench.power.energy.series import samples_of, series_curve
from tests.physics.board import BOARDS, ns
from tests.physics.load import square
from tests.physics.windows import measure

PERIOD_S = 0.020
Column = npt.NDArray[np.float64]


def samples(power_w: Column, seed: int = 0, missing: int = 0) -> tuple[Column, Column]:
    """Times of samples that are off by 0.5 ms, and their powers, without so many of them."""
    rng = np.random.default_rng(seed)
    kept = np.sort(rng.permutation(len(power_w))[missing:])
    time_s = np.arange(len(power_w)) * PERIOD_S + rng.normal(0, 0.5e-3, len(power_w))
    return time_s[kept], power_w[kept]


def expected(time_s: Column, power_w: Column, most_repeat: int) -> tuple[float, float]:
    """Both by a loop over all pairs of samples."""
    number = np.rint((time_s - time_s[0]) / PERIOD_S).astype(int)
    found = []
    for numbers, values in ((number, power_w), (number[1:], np.diff(power_w))):
        at = dict(zip(numbers.tolist(), (values - values.mean()).tolist(), strict=True))
        alike = []
        for apart in range(2 * most_repeat + 1):
            products = [value * at[one + apart] for one, value in at.items() if one + apart in at]
            alike.append(float(np.mean(products)) if len(products) >= 20 else 0.0)
        found.append(np.array(alike) / alike[0])
    best = min(max(min(alike[one], alike[2 * one]) for one in range(2, most_repeat + 1)) for alike in found)
    shared = [0.0]
    for num in range(2, 9):
        sum_alike, number_alike = 0.0, num
        while number_alike <= 2 * most_repeat and found[1][number_alike] >= 0.1:
            sum_alike += min(found[1][number_alike], 1.0)
            number_alike += num
        shared.append(2 * sum_alike / num**2)
    return min(max((best - 0.5) / 0.4, 0.0), 1.0), max(shared)


@pytest.mark.parametrize("seed", range(6))
def test_by_all_pairs(seed: int) -> None:
    """A cycle of seed + 2 samples under noise, some of them missing, on a slope."""
    rng = np.random.default_rng(seed)
    power_w = np.resize(rng.uniform(300, 600, seed + 2), 300) + rng.normal(0, 40, 300) + np.linspace(0, 200, 300)
    time_s, seen_w = samples(power_w, seed, missing=12)
    found = Repeats.of(time_s, seen_w, PERIOD_S, 60)
    assert (found.in_step, found.shared_fraction) == pytest.approx(expected(time_s, seen_w, 60), rel=1e-9)


def test_a_cycle_keeps_step() -> None:
    cycle_w = np.array([300.0, 600.0, 450.0, 350.0])
    found = Repeats.of(*samples(np.resize(cycle_w, 400)), PERIOD_S, 60)
    assert found.in_step == 1.0
    # 30 further cycles of four samples within 120.
    assert found.shared_fraction == pytest.approx(2 * 30 / 4**2, rel=0.05)


def test_a_trend_is_no_repetition() -> None:
    """Work from an idle board to an idle board: samples are alike at any distance, their changes are not."""
    rng = np.random.default_rng(1)
    power_w = np.repeat([120.0, 690.0, 120.0], 200) + rng.normal(0, 15, 600)
    found = Repeats.of(*samples(power_w), PERIOD_S, 60)
    assert found.in_step == 0.0
    assert found.shared_fraction < 0.1


def test_changes_alone_are_no_repetition_either() -> None:
    """A cycle on a power that wanders by more."""
    rng = np.random.default_rng(2)
    wandering_w = np.convolve(rng.normal(0, 60, 406), np.ones(7), "valid")
    cycle_w = np.resize([0.0, 140.0, 40.0, -110.0, 20.0], 400)
    wandering, steady = (samples(500 + each_w) for each_w in (wandering_w + cycle_w, cycle_w))
    assert Repeats.of(*wandering, PERIOD_S, 60).in_step < 0.2
    assert Repeats.of(*steady, PERIOD_S, 60).in_step == 1.0


def test_cycles_that_come_to_an_end_share_as_long_as_they_last() -> None:
    """Stacks of eight cycles of two samples, each at a height of its own, in no order."""
    rng = np.random.default_rng(3)
    stacks = [np.resize([0.0, rng.normal(0, 100)], 16) for _ in range(40)]
    found = Repeats.of(*samples(500 + np.concatenate(stacks)), PERIOD_S, 60)
    # The autocorrelation falls evenly from 1 to 0 within 16 samples: 7/8 + 6/8 ... + 1/8.
    assert found.shared_fraction == pytest.approx(2 * 3.5 / 2**2, abs=0.5)


def test_steady_or_few_samples_repeat_nothing() -> None:
    assert Repeats.of(*samples(np.full(200, 400.0)), PERIOD_S, 60) == Repeats(0.0, 0.0)
    assert Repeats.of(*samples(np.array([300.0, 500.0])), PERIOD_S, 60) == Repeats(0.0, 0.0)
    assert Repeats.of(*samples(np.resize([300.0, 600.0], 12)), PERIOD_S, 60).in_step == 0.0


def test_what_cells_share_is_added_to_the_doubt_of_their_own() -> None:
    """The larger of it and of what is open of peaks that are alike: both are of the same cells."""
    curve = undo(*samples(np.resize([300.0, 600.0, 450.0, 350.0], 400)), LowPass(10.9e-3, 0.0))
    window = [(1.0, 3.0)]
    own_j, shared_j2 = curve.within("variance_j2", window), curve.within("repeated_j2", window)
    assert shared_j2 == pytest.approx(2 * 30 / 4**2 * own_j, rel=0.05)
    alone = replace(curve, unresolved_j=None)
    neither_j, shared_j, both_j = (
        each.shared_sigma_j(window) for each in (replace(alone, repeated_j2=None), alone, curve)
    )
    assert shared_j**2 - neither_j**2 == pytest.approx(shared_j2)
    assert both_j**2 - neither_j**2 == pytest.approx(max(curve.within("unresolved_j", window) ** 2, shared_j2))


def test_a_folded_load_has_no_other_doubt_of_its_periods() -> None:
    rng = np.random.default_rng(5)
    trace = BOARDS["H200, copies"].trace(square(300, 600, 0.4 / 30, 0.6 / 30, -6, 3), -2, 2, rng)
    (gpu,) = trace.gpus
    assert gpu.sensor is not None
    folded = samples_of(gpu, trace.offsets, int(ns(0.0)))
    one, several = (series_curve(folded, windows_s, gpu.sensor) for windows_s in ([(0, 1)], [(0, 0.4), (0.5, 1)]))
    assert one is not None
    assert one.ripples
    assert one.repeated_j2 is None
    assert several is not None
    assert not several.ripples
    assert several.within("repeated_j2", [(0, 1)]) > 0


def test_the_ends_of_several_windows_are_off_alike() -> None:
    """Pieces of 20 ms with 2 J of doubt each."""
    time_s = np.arange(101, dtype=np.float64) * PERIOD_S
    curve = Curve.of_pieces(time_s, np.full(100, 8.0), np.full(100, 2.0))
    windows = [(0.11, 0.55), (0.71, 1.15), (1.31, 1.75)]
    assert curve.shared_sigma_j(windows[:1]) == 0.0
    # Six ends of 2 J, less what each has alone.
    assert curve.shared_sigma_j(windows) == pytest.approx(ENDS_ALIKE * (12**2 - 6 * 2**2) ** 0.5)


@pytest.mark.parametrize("board", ["H200", "H200, copies"])
def test_bounds_of_trainings_are_narrow_and_hold(num_windows: int, board: str) -> None:
    """Layers of any length, an idle board after the last step: bounds were ± 1.6 to 2.6 % in the middle."""
    outcome = measure("training", 6.0, num_windows, BOARDS[board])
    assert outcome.told_percent >= 97
    assert outcome.half_width_percent <= 0.6


@pytest.mark.parametrize("gap_s", [3.0, 40.0, 1e9])
def test_a_gap_of_any_length_is_looked_over(gap_s: float) -> None:
    """A file that was edited may have one of years: repetitions on either side count as before, and cost no more."""
    cycle_w = np.resize([300.0, 500.0, 650.0, 350.0, 420.0], 400)
    time_s, power_w = samples(cycle_w)
    time_s[200:] += gap_s
    assert Repeats.of(time_s, power_w, PERIOD_S, 60).in_step == 1.0
    if gap_s < 1e6:
        found = Repeats.of(time_s, power_w, PERIOD_S, 60)
        assert (found.in_step, found.shared_fraction) == pytest.approx(expected(time_s, power_w, 60))


def test_samples_of_which_most_are_missing_show_no_repetition() -> None:
    time_s = np.arange(50_000, dtype=np.float64) * (PERIOD_S * 121)
    assert Repeats.of(time_s, np.resize([300.0, 500.0], 50_000), PERIOD_S, 60) == Repeats(0.0, 0.0)
