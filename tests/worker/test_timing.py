"""The timing loop's warm-up rule, under a clock of our own."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from pybench.model.wire import Event, Result, Step, Work, WorkOrder
from pybench.model.workloads.train import Train
from pybench.worker.backend import StepOutcome
from pybench.worker.ranks import Ranks
from pybench.worker.timing import TimingLoop

ORDER = WorkOrder(
    point_id="p",
    settings=Train(backend="torch", model="m", global_batch_size=1, sequence_tokens=1),
    architecture={},
    device="cpu",
    steps=1,
    max_warmup_steps=1,
)


class Steps:
    """A workload whose steps move the clock by the given lengths."""

    def __init__(self, *lengths_ns: int) -> None:
        self.now_ns = 0
        self._lengths_ns = lengths_ns

    def step(self, index: int) -> StepOutcome:
        """Move the clock."""
        self.now_ns += self._lengths_ns[index]
        return StepOutcome(work=Work(samples=1))

    def metrics(self) -> tuple[Any, ...]:
        """None."""
        return ()


def test_what_takes_time_to_tell_is_asked_after_the_step() -> None:
    """The step's length is not the asking's."""

    class Asked(Steps):
        def step(self, index: int) -> StepOutcome:
            return replace(super().step(index), values={"itl_s": 1.0}, late_values=self.tell)

        def tell(self) -> dict[str, float]:
            self.now_ns += 1000
            return {"num_running": 2.0}

    workload, events = Asked(10, 10), list[Event]()
    TimingLoop(workload, Ranks(), events.append, clock=lambda: workload.now_ns).run(ORDER)
    steps = [event for event in events if isinstance(event, Step)]
    assert [step.duration_s for step in steps] == [1e-8, 1e-8]
    assert [step.values for step in steps] == [{"itl_s": 1.0, "num_running": 2.0}] * 2


@pytest.mark.parametrize(
    ("lengths_ns", "expected"),
    [
        ((50, 10, 10, 10, 7, 8), Result(warmup_steps=4, steady=True)),
        ((10, 20, 10, 20, 7, 8), Result(warmup_steps=4, steady=False)),
    ],
)
def test_loop_warms_up_then_measures(lengths_ns: tuple[int, ...], expected: Result) -> None:
    """Two measured steps follow the warm-up, which says whether it became steady below its ceiling of 4."""
    order = replace(ORDER, steps=2, max_warmup_steps=4)
    workload = Steps(*lengths_ns)
    events: list[Event] = []
    result = TimingLoop(workload, Ranks(), events.append, lambda: workload.now_ns).run(order)
    steps = [event for event in events if isinstance(event, Step)]
    assert expected == result
    assert [(s.phase, s.end_ns - s.start_ns) for s in steps[4:]] == [("measure", 7), ("measure", 8)]


_S = 1_000_000_000


@pytest.mark.parametrize(
    ("lengths_s", "end_s", "warm_up", "measured"),
    [
        ((4, 4, 4, 4, 4, 4), None, 1, 5),
        ((4, 4, 4, 4, 4, 4), 25, 1, 5),
        ((4, 4, 4, 4, 4, 4), 17, 1, 3),
        ((4, 4, 3, 6, 4, 4), 23, 1, 3),
        ((4, 4), 0, 1, 1),
    ],
)
def test_measuring_ends_with_the_last_step_that_fits_the_runs_time(
    lengths_s: tuple[int, ...], end_s: int | None, warm_up: int, measured: int
) -> None:
    """By hand: the longest measured step, and a second to report it. One step is always measured."""
    order = replace(ORDER, steps=5, end_ns=None if end_s is None else end_s * _S)
    workload, events = Steps(*(length * _S for length in lengths_s)), list[Event]()
    TimingLoop(workload, Ranks(), events.append, lambda: workload.now_ns).run(order)
    phases = [event.phase for event in events if isinstance(event, Step)]
    assert phases == ["warmup"] * warm_up + ["measure"] * measured


def test_the_runs_time_cuts_no_warm_up() -> None:
    """Steps of 4, 8, 4 and 4 s are steady after 20 s, when the time is over."""
    order = replace(ORDER, steps=5, max_warmup_steps=9, end_ns=10 * _S)
    workload, events = Steps(*(length * _S for length in (4, 8, 4, 4, 4))), list[Event]()
    result = TimingLoop(workload, Ranks(), events.append, lambda: workload.now_ns).run(order)
    assert result == Result(warmup_steps=4, steady=True)
    assert [event.phase for event in events if isinstance(event, Step)] == ["warmup"] * 4 + ["measure"]


def test_dither_pauses_before_measured_steps_and_outside_their_time() -> None:
    """Steps of 20 ms would all begin at one phase of a sensor that samples as often."""
    order = replace(ORDER, steps=16, max_warmup_steps=1, dither_ms=20.0)
    workload, pauses_s, events = Steps(*[20_000_000] * 17), list[float](), list[Event]()

    def sleep(pause_s: float) -> None:
        pauses_s.append(pause_s)
        workload.now_ns += round(pause_s * 1e9)

    TimingLoop(workload, Ranks(), events.append, lambda: workload.now_ns, sleep).run(order)
    steps = [event for event in events if isinstance(event, Step)]
    assert {step.end_ns - step.start_ns for step in steps} == {20_000_000}
    assert len(pauses_s) == 16
    assert len({step.start_ns % 20_000_000 for step in steps[1:]}) == 16


def test_garbage_collector_passes_over_what_lived_before_the_steps() -> None:
    """While steps run only; cycles that they leave behind are still collected."""
    order = replace(ORDER, steps=2, max_warmup_steps=1)
    frozen: list[int] = []

    class Watched(Steps):
        def step(self, index: int) -> StepOutcome:
            frozen.append(gc.get_freeze_count())
            return super().step(index)

    workload = Watched(10, 7, 7)
    TimingLoop(workload, Ranks(), lambda _event: None, lambda: workload.now_ns).run(order)
    assert len(frozen) == 3
    assert min(frozen) > 0
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()
