"""Pauses between steps, against a sensor that samples a load in step with it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from pybench.worker.dither import Dither
from tests.physics.load import Load

PERIOD_NS = 20_000_000
IDLE_W, BUSY_W = 140.0, 690.0
TAU_S = 10.9e-3  # the low-pass that an H200's sensor has
WINDOW_S = 12


def starts_ns(length_ns: int, first_ns: int, *, dithered: bool) -> list[int]:
    """When steps of one length begin, one behind the other."""
    dither, now_ns, found = Dither(PERIOD_NS), first_ns, []
    while now_ns < WINDOW_S * 10**9:
        if dithered:
            now_ns += round(dither.pause_ns(now_ns))
            dither.begun(now_ns)
        found.append(now_ns)
        now_ns += length_ns
    return found


def error(length_ns: int, first_ns: int, *, dithered: bool) -> float:
    """Mean of a 50 Hz sensor's samples over the truth, less 1; a GPU is busy for the first half of every step."""
    edges = [
        edge for start in starts_ns(length_ns, first_ns, dithered=dithered) for edge in (start, start + length_ns // 2)
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
    """No pause reaches a fifth of the period, and together they take a tenth of the steps' time at most."""
    starts = starts_ns(length_ns, 5, dithered=True)
    begun = Counter(start * 16 // PERIOD_NS % 16 for start in starts)
    pauses_ns = np.diff(starts) - length_ns
    assert max(begun.values()) - min(begun[part] for part in range(16)) <= 2
    assert pauses_ns.min() >= 0
    assert pauses_ns.max() < PERIOD_NS / 5
    assert pauses_ns.mean() <= max(length_ns, PERIOD_NS) / 10
