"""GPUs at their power limit, and their power, in an explanation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.explain.text import render
from pybench.model.record import GpuConditions, Record
from pybench.model.wire import Metric
from tests.build import Build


def test_boards_at_their_power_limit_are_named(runs: Any, build: Build) -> None:
    """GPU 1 of two, with a clock 10 % lower; no GPU of the baseline; a third GPU has no rank."""
    one, two = build.train(1), build.train(2)
    records = [
        *(_with_gpus(record, (0x0, 0x4, 0x4)) for record in runs.measured(one, 0.1)),
        *(_with_gpus(record, (0x1, 0x5, 0x4)) for record in runs.measured(two, 0.11)),
    ]
    explanation = runs.explain_records(records, [(one, 0.1), (two, 0.11)])
    (point,) = explanation.points
    assert (point.power_limited, point.baseline_power_limited) == (("GPU 1",), ())
    assert point.clock_fraction == pytest.approx(-0.1)
    text = render(explanation, {}, width=240)
    assert "baseline at power limit" in text
    assert "GPU 1" in text
    assert "-10.0 %" in text


def test_unread_power_limits_are_unknown(runs: Any, build: Build) -> None:
    """Unknown differs from no GPU; without any reading there is no table."""
    explanation = runs.explain([(build.train(1), 0.1), (build.train(2), 0.11)])
    (point,) = explanation.points
    assert (point.power_limited, point.baseline_power_limited, point.clock_fraction) == (None, None, None)
    assert "at power limit" not in render(explanation, {}, width=240)


@pytest.mark.parametrize(
    ("step_s", "power_w", "waits"),
    [(0.3, 350.0, True), (0.3, 600.0, False), (0.2, 350.0, False), (0.3, None, False)],
    ids=["unexplained and cool", "unexplained and busy", "explained and cool", "power unknown"],
)
def test_gpus_that_draw_less_in_an_unexplained_step_wait(
    runs: Any, build: Build, step_s: float, power_w: float | None, waits: bool
) -> None:
    """Each of two GPUs draws half of the baseline's power; a note needs an unexplained step as well."""
    one, two = build.train(1), build.train(2)
    records = [
        *(_drawing(build, record, 700.0) for record in runs.measured(one, 0.1)),
        *(_drawing(build, record, power_w) for record in runs.measured(two, step_s)),
    ]
    explanation = runs.explain_records(records, [(one, 0.1), (two, step_s)])
    (point,) = explanation.points
    expected = None if power_w is None else pytest.approx(power_w / 700 - 1)
    assert point.power_fraction == expected
    text = render(explanation, {}, width=240)
    assert ("draw 350 W each, the baseline's 700 W: they wait" in text) is waits
    assert ("-50.0 %" in text) is (power_w == 350.0)


def test_measured_communication_explains_an_unexplained_step(runs: Any, build: Build) -> None:
    """Steps without communication show it; the note about power gives way."""
    one, two = build.train(1), build.train(2)
    told = [
        Metric(name="exposed_communication_fraction", value=0.6, unit=""),
        Metric(name="straggler_gap_fraction", value=0.01, unit=""),
    ]
    slow = [
        dataclasses.replace(
            record, ranks=tuple(dataclasses.replace(rank, metrics=(*rank.metrics, *told)) for rank in record.ranks)
        )
        for record in runs.measured(two, 0.3)
    ]
    records = [
        *(_drawing(build, record, 700.0) for record in runs.measured(one, 0.1)),
        *(_drawing(build, record, 350.0) for record in slow),
    ]
    (point,) = runs.explain_records(records, [(one, 0.1), (two, 0.3)]).points
    assert point.wait is not None
    assert point.wait.startswith("communication takes 60.0 % of the step, predicted ")


def _drawing(build: Build, record: Record, power_w: float | None) -> Record:
    """The record with this power on each GPU, over one second."""
    joules = [power_w] * len(record.ranks)
    return dataclasses.replace(record, energy=build.energy(joules, 1.0))


def _with_gpus(record: Record, reasons: tuple[int, ...]) -> Record:
    """The record with a UUID for each rank, and the clock event reasons of every GPU."""
    ranks = tuple(
        dataclasses.replace(rank, header=dataclasses.replace(rank.header, device_uuid=f"GPU-{place}"))
        for place, rank in enumerate(record.ranks)
    )
    conditions = tuple(
        GpuConditions(
            uuid=f"GPU-{place}", index=place, clock_event_reasons=bits, sm_clock_hz=1.8e9 if bits & 0x4 else 2.0e9
        )
        for place, bits in enumerate(reasons)
    )
    return dataclasses.replace(record, ranks=ranks, conditions=conditions)
