"""Absolute readings of each GPU, over attempts."""

from __future__ import annotations

import dataclasses
from typing import Any

from pybench.core.measurements import Measurements
from pybench.core.summary import summarize
from pybench.model.record import GpuConditions, GpuState
from pybench.model.suite import Plan
from tests.build import Build


def _gpu(index: int, **read: Any) -> GpuConditions:
    return GpuConditions(uuid=f"GPU-{index}", index=index, **read)


def test_over_attempts(build: Build) -> None:
    """The median clock, the highest temperature, everything that held the clock; also of a GPU alone."""
    point = build.generate()
    told = [
        _gpu(0, sm_clock_hz=1.9e9, temperature_c=60.0, clock_event_reasons=0x05),
        _gpu(0, sm_clock_hz=1.7e9, temperature_c=64.0, clock_event_reasons=0x40),
        _gpu(0),
    ]
    records = build.measured(point, [[2.0]] * 3)
    records = [dataclasses.replace(record, conditions=(one,)) for record, one in zip(records, told, strict=True)]
    (result,) = summarize(Measurements.of(Plan(points=(point,), skips=()), records))
    assert result.gpu_states == (
        GpuState(
            uuid="GPU-0",
            index=0,
            sm_clock_hz=1.8e9,
            temperature_c=64.0,
            held_by=("power limit", "hardware thermal slowdown"),
        ),
    )


def test_nothing_held_it_and_nothing_was_read(build: Build) -> None:
    """Both cases are distinct; without a sensor there is no state of a GPU."""
    point = build.generate()
    (record,) = build.measured(point, [[2.0]])
    plan = Plan(points=(point,), skips=())
    assert summarize(Measurements.of(plan, [record]))[0].gpu_states == ()
    idle = dataclasses.replace(record, conditions=(_gpu(0, clock_event_reasons=0x01), _gpu(1)))
    (result,) = summarize(Measurements.of(plan, [idle]))
    assert [gpu.held_by for gpu in result.gpu_states] == [(), None]
    assert (result.gpu_states[1].sm_clock_hz, result.gpu_states[1].temperature_c) == (None, None)
