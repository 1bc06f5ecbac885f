"""Rounds of requests whose engine tells no rounds, in the energy of measured steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.model.suite import Effort, Point
from pybench.model.wire import RequestTimes, Step, Work
from pybench.model.workloads.generate import Generate
from pybench.power.measured_window import window_energy
from pybench.power.trace import GpuTrace, PolledColumns, PowerTrace

MS = 1_000_000
POINT = Point(
    id="p",
    benchmark="b",
    axes={},
    settings=Generate(backend="tensorrt_llm", model="tiny", batch_size=1, prompt_tokens=4, output_tokens=11),
    effort=Effort(),
    architecture=None,
)


def trace() -> PowerTrace:
    """A GPU at 400 W, read every 20 ms."""
    times = [t * MS for t in range(-200, 1201, 20)]
    polled = PolledColumns(t_ns=times, instant_mw=[400_000] * len(times), average_mw=[400_000] * len(times))
    gpu = GpuTrace(uuid="GPU-0", index=0, name="GPU", state="ok", polled=polled)
    return PowerTrace(start_ns=-200 * MS, end_ns=1200 * MS, gpus=(gpu,))


def step(round_ms: int) -> Step:
    """A request of 11 tokens whose 10 rounds have this length, and no word of the rounds themselves."""
    request = RequestTimes(
        arrival_ns=0,
        first_token_ns=100 * MS,
        last_token_ns=(100 + 10 * round_ms) * MS,
        prompt_tokens=4,
        output_tokens=11,
    )
    work = Work(prompt_tokens=4, output_tokens=11, samples=1)
    return Step(index=0, phase="measure", start_ns=0, end_ns=1000 * MS, work=work, requests=(request,))


@pytest.mark.parametrize(("round_ms", "risky"), [(20, True), (41, False)])
def test_rounds_are_those_of_requests_where_none_are_told(round_ms: int, risky: bool) -> None:
    """A round of the sensor's own period aliases with it; the step of a second does not."""
    (gpu,) = window_energy(POINT, [[step(round_ms)]], trace()).gpus
    assert ("alias_risk" in gpu.flags) == risky


def test_a_single_token_has_no_rounds() -> None:
    """Then the steps' own length is the period."""
    one = step(20)
    (request,) = one.requests
    alone = replace(one, requests=(replace(request, output_tokens=1),))
    (gpu,) = window_energy(POINT, [[alone]], trace()).gpus
    assert "alias_risk" not in gpu.flags
