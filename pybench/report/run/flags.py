"""The meaning of each flag of a result, and whether it concerns the joules or the whole measurement."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.core.validity import VERDICT_FLAGS
from pybench.model.results import PointResult
from pybench.report.run.headline import energy_name

OF_MEASUREMENT = {
    **{flag: traits.meaning for flag, traits in VERDICT_FLAGS.items()},
    "not_steady": "neither the warm-up's last three steps nor three or more measured ones agree within 5 %",
    "scattered_steps": "half of an attempt's steps lie more than 5 % from their median: they drift, or vary",
    "single_attempt": "one attempt was measured, so the spread between runs is unknown",
    "fewer_attempts": "there are fewer attempts than the suite wants, so the interval is wider",
    "fewer_steps": "--time-limit left an attempt fewer steps than the suite wants, so its median scatters more",
    "outlying_attempt": "one attempt lies far from the others",
    "kv_starved": "the key-value cache was too small: sequences were preempted or had to wait",
    "input_bound": "steps waited for their loader for more than 5 % of their length",
    "stages_wait": "stages of a pipeline wait for more than a fifth of a step: more microbatches, or samples, help",
    "no_control_steps": "steps without communication found no memory after the measured ones: control_steps = 0",
    "gpu_without_layers": "no layer of the model lies on one of the GPUs, which had nothing to do",
    "starved_baseline": "the baseline's key-value cache was too small, so its ratio is not judged",
    "suspect_baseline": "more than 10 % above linear: the baseline was held back",
    "better_than_expected": "beyond the better side of the expected range: the table may need an update",
    "throttled": "heat or a power brake held a clock down",
    "lost": "the GPU stopped responding while power was recorded",
}
"""Flags of a measurement as a whole, and of rows."""
OF_JOULES = {
    "insufficient": "no power sensor covers the whole window, so its energy is unknown",
    "gap": "the power series lacks more than 0.3 s of the window; the counter's total is complete unless it ends there",
    "stalled": "a driver call took longer than one second within the window",
    "counter_reset": "the energy counter fell within the window: the driver was reloaded",
    "counter_vs_power": "the energy counter and the power series differ by more than 3 %: the bound holds both",
    "alias_risk": "the load keeps the power sensor's rhythm: joules may lie beyond their bound; dither avoids it",
    "clock_step": "the wall clock was set while power was recorded; later samples were moved back",
    "glitch": "power readings of 0 W were left out",
    "dropped_records": "the power recorder ran out of room and lost readings",
    "short_window": "a phase was shorter than the power sensor's sampling period",
    "dithered": "the joules of the pauses between steps were subtracted, and their uncertainty added",
    "uncalibrated": "pybench has not measured the power sensor of this kind of board, so the bound is wider",
    "part_time_sensor": "the sensor sees the power only part of the time: a load in step with it is invisible",
    "sensor_misfit": "counter and series do not follow each other as the sensor's model predicts",
    "temperature_drift": "a GPU warmed or cooled by more than 10 °C, which changes its power",
    "mig": "the power of MIG instances cannot be separated",
    "shared_board": "another GPU shares the board and its power sensor",
    "module_scope": "the power sensor includes the module's CPU",
    "no_sampler": "the GPU's host sampled no power, so the energy of all hosts together is unknown",
    "clocks_apart": "the clock of the GPU's host is known to more than 1 ms only, so its energy is unknown",
    "no_permission": "the driver refused to report power",
    "not_supported": "the GPU does not report power",
    "error": "the driver reported an error while power was recorded",
}
"""Flags of joules alone."""
MEANINGS = {**OF_MEASUREMENT, **OF_JOULES}


def relevant(point: PointResult) -> tuple[str, ...]:
    """Flags that concern the point's figures: flags of joules only where joules per unit are shown."""
    joules = energy_name(point) is not None
    return tuple(flag for flag in point.flags if joules or flag not in OF_JOULES)


def legend(flags: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Each flag once with its meaning, in the order of first use; flags of another version are named only."""
    return tuple((flag, MEANINGS.get(flag, "no description in this version")) for flag in dict.fromkeys(flags))
