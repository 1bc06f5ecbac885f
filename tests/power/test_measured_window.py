"""Energy of measured steps, from a worker's record and a power trace."""

from __future__ import annotations

import pytest

from pybench.model.record import GpuEnergy
from pybench.model.suite import Effort, Point
from pybench.model.wire import RequestTimes, Step, Work
from pybench.model.workloads.node import Burn
from pybench.power.measured_window import window_energy
from pybench.power.sensor import shipped_model
from pybench.power.trace import GpuTrace, OffsetColumns, PowerTrace, SeriesColumns

MS = 1_000_000


def found(
    starts_ms: list[float], dither_ms: float, tokens_ms: tuple[float, ...] = (), first_ms: tuple[float, ...] = ()
) -> GpuEnergy:
    """Joules of steps of 20 ms at 400 W. Requests have one token at ``first_ms`` and one 5 ms later."""
    stamps = [at * MS for at in range(-1000, 3000, 20)]
    gpu = GpuTrace(
        uuid="GPU-0",
        index=0,
        name="g",
        sensor=shipped_model("NVIDIA H200", "580.00"),
        series=SeriesColumns(realtime_ns=stamps, power_mw=[400_000] * len(stamps)),
    )
    trace = PowerTrace(
        start_ns=stamps[0],
        end_ns=stamps[-1],
        gpus=(gpu,),
        offsets=OffsetColumns(t_ns=(stamps[0],), realtime_offset_ns=(0,), set_by_ns=(0,)),
    )
    steps = [
        Step(
            index=index,
            phase="measure",
            start_ns=round(start_ms * MS),
            end_ns=round((start_ms + 20) * MS),
            work=Work(),
            token_end_ns=tuple(round((start_ms + at_ms) * MS) for at_ms in tokens_ms),
            requests=tuple(
                RequestTimes(
                    arrival_ns=round(start_ms * MS),
                    first_token_ns=round((start_ms + at_ms) * MS),
                    last_token_ns=round((start_ms + at_ms + 5) * MS),
                    prompt_tokens=1,
                    output_tokens=2,
                )
                for at_ms in first_ms
            ),
        )
        for index, start_ms in enumerate(starts_ms)
    ]
    effort = Effort(dither_ms=dither_ms)
    point = Point(id="p", benchmark="p", axes={}, settings=Burn(backend="torch"), effort=effort, architecture=None)
    return window_energy(point, [steps], trace).gpus[0]


@pytest.mark.parametrize(
    ("apart_ms", "dither_ms", "flags"),
    [
        (20, 0, ("alias_risk",)),
        (20.05, 1, ("alias_risk", "dithered")),
        (24, 20, ("dithered",)),
        (24, 0, ()),
    ],
)
def test_recorded_steps_tell_whether_they_kept_step(apart_ms: float, dither_ms: float, flags: tuple[str, ...]) -> None:
    """Ten steps, in strides of the sensor's period, and of a fifth more."""
    assert found([number * apart_ms for number in range(10)], dither_ms).flags == flags


def test_steps_with_idle_time_between_repeat_with_it() -> None:
    """Steps of 20 ms come every 60 ms."""
    assert found([number * 60 for number in range(10)], 0).flags == ("alias_risk",)


def test_decode_rounds_tell_for_themselves() -> None:
    """Rounds of 5 ms in steps that keep step; of 4 ms, not near any harmonic."""
    starts_ms = [float(number * 20) for number in range(10)]
    assert found(starts_ms, 0, (5, 10, 15, 20)).flags == ("alias_risk",)
    assert found(starts_ms, 0, (4, 8, 12, 16, 20)).flags == ()


def test_tokens_of_requests_tell_for_themselves() -> None:
    """Tokens 5 ms apart, at a quarter of the sensor's period: always at its beginning, and at any time."""
    starts_ms = [float(number * 20) for number in range(40)]
    assert found(starts_ms, 0, first_ms=(0, 5)).flags == ("alias_risk",)
    assert found(starts_ms, 0, first_ms=tuple(number * 0.5 for number in range(40))).flags == ()
