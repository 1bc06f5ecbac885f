"""The one timing loop: every workload of every backend is warmed up and measured here."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pybench.model.wire import STEADY_STEPS, Event, Phase, Result, Step, WorkOrder, are_steady, fits
from pybench.worker.backend import Workload
from pybench.worker.ranks import Ranks


def _spare_collector() -> None:
    """Take all that lives by now out of the garbage collector's later passes.

    A pass over a wrapped model's objects takes 0.1 s of a training step, each rank's another step's. Cycles that the
    steps leave behind are still collected.
    """
    gc.collect()
    gc.freeze()


@dataclass
class TimingLoop:
    """Runs steps of ``workload`` and reports each. Times are CLOCK_MONOTONIC nanoseconds."""

    workload: Workload
    ranks: Ranks
    report: Callable[[Event], None]
    clock: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], None] = time.sleep

    def run(self, order: WorkOrder) -> Result:
        """Warm up until steady or the ceiling, then measure ``order.steps`` steps, or as many as fit the run's time.

        The run's time cuts no warm-up: a step before its end may be 9 % longer than one after it.
        With ``order.dither_ms``, a power sensor's sampling period, pauses come before measured steps, which no step's
        time contains: steps in time with the sensor would otherwise always be seen at one phase.
        """
        try:
            _spare_collector()
            self.report(Phase(name="warmup", start_ns=self.clock()))
            num_warmup, steady = self._warm_up(order)
            _spare_collector()
            self.report(Phase(name="measure", start_ns=self.clock()))
            dither = Dither(order.dither_ms * 1e6, order.steps) if order.dither_ms else None
            longest_ns = 0
            for index in range(num_warmup, num_warmup + order.steps):
                if index > num_warmup and not self._fits(longest_ns, order):
                    break
                if dither:
                    self.sleep(dither.pause_ns(self.clock()) / 1e9)
                step = self._step(index, "measure")
                longest_ns = max(longest_ns, step.duration_ns)
                if dither:
                    dither.begun(step.start_ns)
            self.report(Phase(name="finish", start_ns=self.clock()))
            return Result(warmup_steps=num_warmup, steady=steady)
        finally:
            gc.unfreeze()

    def _warm_up(self, order: WorkOrder) -> tuple[int, bool]:
        durations_ns: list[int] = []
        steady = False
        while not steady and len(durations_ns) < order.max_warmup_steps:
            step = self._step(len(durations_ns), "warmup")
            durations_ns.append(step.duration_ns)
            # Ranks time slightly differently: one decides for all, or they would part ways.
            last = (durations_ns[-STEADY_STEPS:], durations_ns[-STEADY_STEPS + 1 :])
            steady = self.ranks.agree(any(map(are_steady, last)))
        return len(durations_ns), steady

    def _fits(self, step_ns: int, order: WorkOrder) -> bool:
        """Whether the run has time for another step, by rank 0's clock."""
        return order.end_ns is None or self.ranks.agree(fits(step_ns, self.clock(), order.end_ns))

    def _step(self, index: int, phase: Literal["warmup", "measure"]) -> Step:
        self.ranks.barrier()
        start_ns = self.clock()
        outcome = self.workload.step(index)
        self.ranks.barrier()
        end_ns = self.clock()
        step = Step(
            index=index,
            phase=phase,
            start_ns=start_ns,
            end_ns=end_ns,
            work=outcome.work,
            token_end_ns=outcome.token_end_ns,
            requests=outcome.requests,
            loss=outcome.loss,
            values={**outcome.values, **outcome.late_values()},
            spans=outcome.spans,
        )
        self.report(step)
        return step


_FEWEST_PARTS, _MOST_PARTS = 5, 16
_LONGEST_PAUSE_FRACTION = 0.2


class Dither:
    """Delays steps so that they start evenly spread over the sensor's sampling period. Times are ns of one clock.

    The sampling period is divided into 5 to 16 parts: the number that divides ``num_steps`` with the smallest
    remainder. A step waits for the beginning of a part where fewer have begun, a fifth of the period at the most. A
    load in step with the sensor is paused for one part on average; pauses drawn at random need many times as long to
    come as near. Fewer than five steps can't sweep the period by such pauses.
    """

    def __init__(self, period_ns: float, num_steps: int) -> None:
        parts = range(_MOST_PARTS, _FEWEST_PARTS - 1, -1)
        num_parts = min(parts, key=lambda parts: num_steps % parts) if num_steps >= _FEWEST_PARTS else _FEWEST_PARTS
        self._begun = [0] * num_parts
        self._part_ns = period_ns / len(self._begun)
        self._longest_ns = period_ns * _LONGEST_PAUSE_FRACTION
        self._origin_ns: int | None = None

    def pause_ns(self, now_ns: int) -> float:
        """How long the step that could begin now is to wait."""
        if self._origin_ns is None:
            return 0.0
        now = (now_ns - self._origin_ns) / self._part_ns
        longest = self._longest_ns / self._part_ns
        # A part that begins just beyond the longest pause is nearly reached.
        waits = [min(ahead + 1 - now % 1, longest) for ahead in range(round(now % 1 + longest))]
        return min([0.0, *waits], key=lambda wait: self._drawback(now + wait)) * self._part_ns

    def begun(self, start_ns: int) -> None:
        """A step did begin then."""
        self._origin_ns = start_ns if self._origin_ns is None else self._origin_ns
        self._begun[round((start_ns - self._origin_ns) / self._part_ns) % len(self._begun)] += 1

    def _drawback(self, at: float) -> tuple[int, float]:
        """Number of steps that began at the part next to ``at``, and the distance to it, in parts."""
        return self._begun[round(at) % len(self._begun)], round(abs(at - round(at)), 3)
