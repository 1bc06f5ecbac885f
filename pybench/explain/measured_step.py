"""A measured point of a model's workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pybench.core.joint_step import joint_steps, phase_cuts_ns
from pybench.core.measurements import Measurements, grouped
from pybench.core.node_driver import POWER_LIMIT, gpu_states
from pybench.core.numbers import percent
from pybench.core.statistics.interval import location
from pybench.core.summary import INPUT_BOUND
from pybench.explain.node import MeasuredNode, gpu_names, node_rates
from pybench.explain.predict import predicted_phases, refuse_launch_bound, runs_in_waves
from pybench.explain.step_time import Baseline, BaselinePhase, NodeRates, StepTime, UnmeasuredError, total
from pybench.model.record import gpu_label
from pybench.model.suite import AxisValue, Point
from pybench.model.workloads.settings import NODES, PARALLEL_AXES, ModelSettings
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn

# Settings in which compared points may differ.
_SPREAD = (*PARALLEL_AXES, NODES)


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """A point with its median step, the samples in it and the names of its GPUs.

    ``prefill_s``: median time until every sequence of a generation has its first token, ``None`` if not reported.
    ``power_limited``: GPUs whose power limit lowered their clock at some time; ``None`` if no reason was read.
    ``clock_hz``: lowest SM clock of its GPUs, each the median over attempts; ``None`` if no clock was read.
    ``power_w``: mean power of one GPU. ``input_wait_fraction``: share of a step that waits for a loader, ``None``
    without a loader.
    """

    point: Point
    step_s: float
    prefill_s: float | None
    samples: float
    gpus: tuple[str, ...]
    power_limited: tuple[str, ...] | None = None
    clock_hz: float | None = None
    power_w: float | None = None
    input_wait_fraction: float | None = None

    @property
    def settings(self) -> ModelSettings:
        """Settings of a model's workload."""
        assert isinstance(self.point.settings, ModelSettings)
        return self.point.settings

    @property
    def rate(self) -> float:
        """Samples in a second."""
        return self.samples / self.step_s

    @property
    def samples_each(self) -> float:
        """Samples of one replica."""
        return self.samples / self.settings.data_parallel

    @property
    def group(self) -> dict[str, AxisValue]:
        """Axes that it shares with the points of its group."""
        return {name: value for name, value in self.point.axes.items() if name not in _SPREAD}

    def rates(self, node: NodeRates) -> NodeRates:
        """Rates of the point's own GPUs if the node's run has them, else of the node."""
        return node.on(self.gpus) if node.gpus else node

    def predicted(self, node: NodeRates) -> tuple[StepTime, ...]:
        """Predicted phases, with the collectives over the point's own nodes. Raises ``UnmeasuredError``.

        The model has no loader; a loader matters only where steps wait for it.
        """
        if self.input_wait_fraction is not None and self.input_wait_fraction > INPUT_BOUND:
            waits = percent(self.input_wait_fraction)
            raise UnmeasuredError(f"it waits for its loader {waits} of a step, and the model knows no loader")
        return predicted_phases(self.rates(node.over(self.settings.num_nodes)), self.point, self.samples)

    def against(self, base: MeasuredStep, node: NodeRates) -> tuple[Baseline, tuple[StepTime, ...]]:
        """The calibration by ``base`` and the predicted phases. Raises ``UnmeasuredError``."""
        rates = self.rates(node.over(self.settings.num_nodes))
        refuse_launch_bound(rates, self.point, self.samples, base.samples_each)
        return base.as_baseline(base.predicted(node)), self.predicted(node)

    def as_baseline(self, predicted: tuple[StepTime, ...]) -> Baseline:
        """The calibration by this step.

        Time above the prediction is kernels that more GPUs share; in decode rounds it is launches and work of the host,
        which they do not share. An engine that runs in waves prefills some sequences while others decode: its step has
        one phase. More replicas have fewer waves each, so they share all of it.
        """
        shrinks = isinstance(self.settings, Train) or runs_in_waves(self.settings)
        if shrinks or self.prefill_s is None:
            step = BaselinePhase(predicted=total(predicted), measured_s=self.step_s, beyond_shrinks=shrinks)
            return Baseline((step,))
        prefill, rounds = predicted
        return Baseline(
            (
                BaselinePhase(predicted=prefill, measured_s=self.prefill_s, beyond_shrinks=True),
                BaselinePhase(predicted=rounds, measured_s=self.step_s - self.prefill_s),
            )
        )


def measured_steps(measurements: Measurements) -> Iterator[MeasuredStep]:
    """Of the measured points of model workloads; turns of an engine and a trainer are left out."""
    for point in measurements.plan.points:
        by_metric = measurements.samples(point)
        samples, powers_w, waits = (by_metric.get(name) for name in ("step_s", "mean_power_w", "input_wait_fraction"))
        if samples is None or not isinstance(point.settings, ModelSettings) or isinstance(point.settings, Turn):
            continue
        good = measurements.good(point.id)
        gpus = gpu_names(good)
        states = [state for state in gpu_states(good) if state.uuid in gpus]
        held = {gpu_label(gpu.uuid, gpu.index): gpu.held_by for gpu in states if gpu.held_by is not None}
        joint = [joint_steps(record) for record in good]
        cuts_ns = [[phase_cuts_ns(step.ranks) for step in steps] for steps in joint]
        first_s = location([[(cut_ns - start_ns) / 1e9 for start_ns, cut_ns, _ in cuts] for cuts in cuts_ns])
        yield MeasuredStep(
            point=point,
            step_s=location(samples),
            prefill_s=first_s or None,
            samples=float(joint[0][0].work.samples),
            gpus=gpus,
            power_limited=tuple(sorted(gpu for gpu in held if POWER_LIMIT in held[gpu])) if held else None,
            clock_hz=min((gpu.sm_clock_hz for gpu in states if gpu.sm_clock_hz is not None), default=None),
            power_w=None if powers_w is None else location(powers_w) / point.num_gpus,
            input_wait_fraction=None if waits is None else location(waits),
        )


def groups_of(steps: Iterable[MeasuredStep]) -> list[list[MeasuredStep]]:
    """Groups of points that differ only in parallel degrees, the fewest GPUs first."""
    groups = grouped((f"{step.point.benchmark} {sorted(step.group.items())!r}", step) for step in steps)
    return [sorted(group, key=lambda measured: measured.point.num_gpus) for group in groups.values()]


def shared_rates(node: MeasuredNode, steps: Sequence[MeasuredStep]) -> NodeRates:
    """Rates of each GPU where the node's run has all GPUs of ``steps``; else its slowest GPU counts for every GPU.

    Raises ``UsageError`` when the node's run lacks products or memory.
    """
    rates = node_rates(node, steps[0].settings.dtype)
    has_each = all(step.gpus and rates.gpus.keys() >= set(step.gpus) for step in steps)
    return rates if has_each else replace(rates, gpus={})
