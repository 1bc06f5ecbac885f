"""Pauses between steps, against a sensor that samples a load in step with it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pybench.worker.timing import Dither
from tests.physics.load import Load

PERIOD_NS = 20_000_000
IDLE_W, BUSY_W = 140.0, 690.0
TAU_S = 10.9e-3  # the low-pass that an H200's sensor has
WINDOW_S = 12


def starts_ns(length_ns: int, first_ns: int, num_steps: int, *, dithered: bool = True) -> list[int]:
    """When steps of one length begin, one behind the other."""
    dither, now_ns, found = Dither(PERIOD_NS, num_steps), first_ns, []
    for _ in range(num_steps):
        if dithered:
            now_ns += round(dither.pause_ns(now_ns))
            dither.begun(now_ns)
        found.append(now_ns)
        now_ns += length_ns
    return found


def error(length_ns: int, first_ns: int, *, dithered: bool) -> float:
    """Mean of a 50 Hz sensor's samples over the truth, less 1; a GPU is busy for the first half of every step."""
    edges = [
        edge
        for start in starts_ns(length_ns, first_ns, WINDOW_S * 10**9 // length_ns, dithered=dithered)
        for edge in (start, start + length_ns // 2)
    ]
    load = Load(np.array(edges) / 1e9, np.tile([BUSY_W, IDLE_W], len(edges) // 2))
    sampled_s = np.arange(0.2, WINDOW_S - 0.2, PERIOD_NS / 1e9)
    begin_j, end_j = load.energy_j([sampled_s[0], sampled_s[-1]])
    truth_w = (end_j - begin_j) / (sampled_s[-1] - sampled_s[0])
    return float(load.low_pass_w(sampled_s, TAU_S).mean() / truth_w - 1)


@pytest.mark.parametrize("length_ns", [PERIOD_NS, PERIOD_NS // 2])
def test_a_load_in_step_with_the_sensor_reads_true(length_ns: int) -> None:
    """At ten phases, where without pauses the worst is off by 10 % and more."""
    first_ns = [phase * PERIOD_NS // 10 for phase in range(10)]
    assert max(abs(error(length_ns, first, dithered=False)) for first in first_ns) > 0.1
    assert max(abs(error(length_ns, first, dithered=True)) for first in first_ns) < 0.005


@pytest.mark.parametrize("length_ns", [PERIOD_NS, PERIOD_NS // 2, PERIOD_NS * 5 // 4, 17_300_000, 1_234_567])
def test_steps_begin_at_all_phases_alike_after_short_pauses(length_ns: int) -> None:
    """No pause is longer than a fifth of the period; on average they are a tenth at most, also of shorter steps."""
    starts = starts_ns(length_ns, 5, 600)
    begun = Counter(round((start - starts[0]) / (PERIOD_NS / 15)) % 15 for start in starts)
    pauses_ns = np.diff(starts) - length_ns
    assert sorted(begun) == list(range(15))
    assert max(begun.values()) - min(begun.values()) <= 2
    assert pauses_ns.min() >= 0
    assert pauses_ns.max() <= PERIOD_NS / 5
    assert pauses_ns.mean() <= PERIOD_NS / 10


@pytest.mark.parametrize(
    ("num_steps", "num_phases"), [(3, 3), (5, 5), (10, 10), (20, 10), (40, 10), (600, 15), (17, 16)]
)
def test_few_steps_cover_the_period_too(num_steps: int, num_phases: int) -> None:
    """Steps of one period: five go in strides of a fifth, and more leave none over where a division does."""
    starts = starts_ns(PERIOD_NS, 10**15 + 3, num_steps)
    phases = Counter(round((start - starts[0]) % PERIOD_NS, -2) % PERIOD_NS for start in starts)
    assert len(phases) == num_phases
    assert max(phases.values()) - min(phases.values()) == num_steps % num_phases
    assert max(np.diff(starts) - PERIOD_NS) <= PERIOD_NS / 5


def test_steps_a_little_short_of_the_period_move_on() -> None:
    """They come back just before their phase, from where the next is a little more than a fifth of the period away."""
    starts = starts_ns(PERIOD_NS - 100_000, 0, 5)
    assert [(start % PERIOD_NS) / 1e6 for start in starts] == pytest.approx([0, 3.9, 7.8, 11.7, 15.6])
