"""Windows at random phases over a simulated board, estimated and compared with the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pybench.power.estimate import attempt_energy, gpu_energies
from pybench.power.trace import PowerTrace
from tests.physics.board import Board, ns, truth_j
from tests.physics.load import Load, batches, bursty, constant, fluctuating, generation, square, training, unsteady

# The sampler had run this long when the window began, and went on this long after its end.
LEAD_S = 1.0
TAIL_S = 0.06
# As marks of other threads have it, the counter is read that often from this long before a window to this long after.
MARKS_APART_S = 0.15
MARKED_BEFORE_S, MARKED_AFTER_S = 0.9, 1.5
# The load goes on for so long after a window, longer than any recording.
LOAD_AFTER_S = 6.0
LONGEST_LAG_S = 0.03
# A window begins at a random time up to this.
LATEST_START_S = 0.2

Make = Callable[[np.random.Generator, float, float], Load]
"""A load from a start to an end, in s."""

# Layers of a training, and rates of decode rounds, in step with the samples, or nearly, or far from it.
LAYERS_S = (0.010, 0.04 / 3, 0.017, 0.020, 0.0204, 0.023, 0.08 / 3, 0.1 / 3, 0.037, 0.040)
ROUNDS_HZ = (44, 47, 49, 53, 60)


def _training(layer_s: float | None = None) -> Make:
    """With layers of this length, or any; it ends soon after the window."""

    def make(rng: np.random.Generator, start_s: float, end_s: float) -> Load:
        length_s = rng.uniform(4e-3, 45e-3) if layer_s is None else layer_s
        return training(rng, length_s, start_s - rng.random(), end_s - LOAD_AFTER_S + LATEST_START_S)

    return make


def _generation(rounds_hz: float) -> Make:
    return lambda rng, start_s, end_s: generation(1 / rounds_hz, start_s - rng.random(), end_s)


LOADS: dict[str, Make] = {
    "constant": lambda rng, start_s, _: constant(rng.uniform(100, 690), start_s),
    "decode_20hz": lambda rng, start_s, end_s: square(300, 600, 0.3 / 20, 0.7 / 20, start_s - rng.random(), end_s),
    "decode_30hz": lambda rng, start_s, end_s: square(300, 600, 0.4 / 30, 0.6 / 30, start_s - rng.random(), end_s),
    "square_200_200": lambda rng, start_s, end_s: square(120, 680, 0.2, 0.2, start_s - rng.random(), end_s),
    "square_150_150": lambda rng, start_s, end_s: square(120, 680, 0.15, 0.15, start_s - rng.random(), end_s),
    "square_50_50": lambda rng, start_s, end_s: square(120, 680, 0.05, 0.05, start_s - rng.random(), end_s),
    "decode_47hz": lambda rng, start_s, end_s: square(300, 600, 0.4 / 47, 0.6 / 47, start_s - rng.random(), end_s),
    "decode_49hz": lambda rng, start_s, end_s: square(300, 600, 0.4 / 49, 0.6 / 49, start_s - rng.random(), end_s),
    "decode_70hz": lambda rng, start_s, end_s: square(300, 600, 0.4 / 70, 0.6 / 70, start_s - rng.random(), end_s),
    "decode_97hz": lambda rng, start_s, end_s: square(300, 600, 0.4 / 97, 0.6 / 97, start_s - rng.random(), end_s),
    "decode_101hz": lambda rng, start_s, end_s: square(300, 600, 0.4 / 101, 0.6 / 101, start_s - rng.random(), end_s),
    # In step with the samples, or nearly.
    "square_25hz": lambda rng, start_s, end_s: square(300, 600, 0.5 / 25, 0.5 / 25, start_s - rng.random(), end_s),
    "square_49.8hz": lambda rng, start_s, end_s: square(
        300, 600, 0.5 / 49.8, 0.5 / 49.8, start_s - rng.random(), end_s
    ),
    "square_50hz": lambda rng, start_s, end_s: square(300, 600, 0.5 / 50, 0.5 / 50, start_s - rng.random(), end_s),
    "square_100hz": lambda rng, start_s, end_s: square(300, 600, 0.5 / 100, 0.5 / 100, start_s - rng.random(), end_s),
    "decode_drifting": lambda rng, start_s, end_s: unsteady(rng, 1 / 30, start_s - rng.random(), end_s, drift=0.003),
    "decode_jittered": lambda rng, start_s, end_s: unsteady(rng, 1 / 30, start_s - rng.random(), end_s, jitter=0.02),
    "generation": _generation(30),
    "square_at_101ms": lambda rng, start_s, end_s: square(120, 680, 0.0505, 0.0505, start_s - rng.random(), end_s),
    "pulses_of_10ms": lambda rng, start_s, end_s: square(100, 650, 0.190, 0.010, start_s - rng.random(), end_s),
    "training": _training(),
    "bursty": lambda rng, start_s, end_s: bursty(rng, start_s - rng.random(), end_s),
    **{f"training_{1e3 * layer_s:.3g}ms": _training(layer_s) for layer_s in LAYERS_S},
    **{f"generation_{rounds_hz}hz": _generation(rounds_hz) for rounds_hz in ROUNDS_HZ},
}


@dataclass(frozen=True)
class Outcome:
    """One value a window: error and half width of the bound, relative, and whether the truth lay inside.

    A window of unknown energy has NaN and a flag, and is not inside.
    """

    error_fraction: npt.NDArray[np.float64]
    inside: npt.NDArray[np.bool_]
    half_width_fraction: npt.NDArray[np.float64]
    flags: tuple[tuple[str, ...], ...] = ()

    @property
    def told_percent(self) -> float:
        """Windows whose bound holds the truth, or whose joules are unknown or flagged, in percent."""
        flagged = np.array([bool(flags) for flags in self.flags])
        return float(np.mean(self.inside | flagged)) * 100

    @property
    def half_width_percent(self) -> float:
        """Median of half the bound's width, in percent of the truth."""
        return float(np.nanmedian(self.half_width_fraction)) * 100

    @property
    def p95_percent(self) -> float:
        """95th percentile of the absolute error, in percent."""
        return float(np.nanquantile(np.abs(self.error_fraction), 0.95)) * 100

    @property
    def inside_percent(self) -> float:
        """Windows whose bound holds the truth, in percent."""
        return float(np.mean(self.inside)) * 100


def measure(
    load_name: str, window_s: float, num_windows: int, board: Board | None = None, *, marked: bool = False
) -> Outcome:
    """Windows on boards with random counter phase and lag, each with its own recording; seeded by their number.

    The counter is read at their ends, and where ``marked`` at marks throughout, before and after, too.
    """
    generators = map(np.random.default_rng, range(num_windows))
    rows = [_one(load_name, window_s, rng, board or Board(), marked=marked) for rng in generators]
    error, inside, half, flags = zip(*rows, strict=True)
    return Outcome(np.array(error), np.array(inside), np.array(half), flags)


def phases(rng: np.random.Generator) -> tuple[tuple[float, float], tuple[float, float]]:
    """Relative error and half width of prefill and of decode, five steps between two anchors of the counter."""
    prefill_s, decode_s, apart_s = rng.uniform(0.05, 1.5), rng.uniform(0.3, 1.5), rng.uniform(0.5e-3, 20e-3)
    load = batches(5, prefill_s, decode_s, apart_s)
    starts_s = np.arange(5) * (prefill_s + decode_s + apart_s)
    board = Board(counter_phase_s=rng.random() * 0.1, lag_s=rng.uniform(0.0, LONGEST_LAG_S))
    marks_s = (-0.15, float(starts_s[-1]) + prefill_s + decode_s)
    trace = board.trace(load, -0.15 - LEAD_S, marks_s[1] + TAIL_S, rng, marks_s)
    cuts_s = starts_s + prefill_s
    return _together(load, trace, starts_s, cuts_s), _together(load, trace, cuts_s, cuts_s + decode_s)


def _together(load: Load, trace: PowerTrace, starts_s: npt.ArrayLike, ends_s: npt.ArrayLike) -> tuple[float, float]:
    (found,) = gpu_energies(trace, list(zip(ns(starts_s).tolist(), ns(ends_s).tolist(), strict=True)), None)
    truth = float(np.sum(load.energy_j(ends_s) - load.energy_j(starts_s)))
    assert found.energy_j is not None
    assert found.energy_high_j is not None
    return found.energy_j / truth - 1, (found.energy_high_j - found.energy_j) / truth


@dataclass(frozen=True)
class Scene:
    """A window over a load on a board with random counter phase and lag."""

    board: Board
    load: Load
    start_s: float
    end_s: float

    @classmethod
    def random(cls, load_name: str, window_s: float, rng: np.random.Generator, board: Board) -> Scene:
        """The same for the same generator."""
        phased = replace(
            board,
            counter_phase_s=rng.random() * board.counter_period_s,
            lag_s=rng.uniform(0.0, LONGEST_LAG_S),
            _sums={},
        )
        load = LOADS[load_name](rng, -LEAD_S - 4, window_s + LOAD_AFTER_S)
        start_s = rng.random() * LATEST_START_S
        if board.own_fraction > 0:
            load = fluctuating(load, board.own_fraction, board.tau_s, window_s + LOAD_AFTER_S, rng)
        return cls(phased, load, start_s, start_s + window_s)


def _one(
    load_name: str, window_s: float, rng: np.random.Generator, board: Board, *, marked: bool
) -> tuple[float, bool, float, tuple[str, ...]]:
    scene = Scene.random(load_name, window_s, rng, board)
    load, start_s, end_s = scene.load, scene.start_s, scene.end_s
    marks_s = [start_s, end_s]
    if marked:
        marks_s = sorted([*marks_s, *np.arange(start_s - MARKED_BEFORE_S, end_s + MARKED_AFTER_S, MARKS_APART_S)])
    trace = scene.board.trace(load, start_s - LEAD_S, marks_s[-1] + TAIL_S, rng, marks_s)
    (found,) = attempt_energy(trace, int(ns(start_s)), int(ns(end_s)), None).gpus
    truth = truth_j(load, start_s, end_s)
    if found.energy_j is None:
        return np.nan, False, np.nan, found.flags
    assert found.energy_low_j is not None
    assert found.energy_high_j is not None
    inside = found.energy_low_j <= truth <= found.energy_high_j
    return found.energy_j / truth - 1, inside, (found.energy_high_j - found.energy_j) / truth, found.flags
