"""A point of a model's workload as it was measured."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.core.clock_events import POWER_LIMIT
from pybench.core.formulas.joint_step import JointStep, joint_steps
from pybench.core.gpu_states import gpu_states
from pybench.core.measurements import Measurements
from pybench.core.numbers import percent
from pybench.core.phases import phase_cuts_ns
from pybench.core.plan.expand import point_id
from pybench.core.statistics.interval import location
from pybench.core.summary import INPUT_BOUND
from pybench.explain.comm_model.figures import NodeFigures, UnmeasuredError
from pybench.explain.comm_model.step_time import Baseline, BaselinePhase, StepTime, whole
from pybench.explain.node_figures import gpu_names
from pybench.explain.predicted_phases import predicted_phases
from pybench.explain.unknown_work import runs_in_waves
from pybench.model.gpu_state import GpuState, gpu_label
from pybench.model.suite import AxisValue, Point
from pybench.model.workloads.settings import NODES, PARALLEL_AXES, ModelSettings
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn

# What points that are compared may differ in: over how many GPUs, and how.
_SPREAD = (*PARALLEL_AXES, NODES)


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """A point with its median step, the samples in it, the names of its GPUs and how they stood.

    ``prefill_s`` is the median time until every sequence of a generation has its first token, ``None`` where none was
    reported. ``power_w`` is the mean of one of its GPUs, ``input_wait_fraction`` the share of a step that waits for a
    loader, ``None`` where there is none.
    """

    point: Point
    step_s: float
    prefill_s: float | None
    samples: float
    gpus: tuple[str, ...]
    gpu_states: tuple[GpuState, ...] = ()
    power_w: float | None = None
    input_wait_fraction: float | None = None

    @property
    def settings(self) -> ModelSettings:
        """Those of a model's workload."""
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
        """What it has in common with the points that it is compared with."""
        return {name: value for name, value in self.point.axes.items() if name not in _SPREAD}

    @property
    def label(self) -> str:
        """The group's name."""
        return point_id(self.point.benchmark, self.group)

    def figures(self, node: NodeFigures) -> NodeFigures:
        """Of its own GPUs, where the node's run has figures of each."""
        return node.on(self.gpus) if node.gpus else node

    def predicted(self, node: NodeFigures) -> tuple[StepTime, ...]:
        """Phases as the model has them, with what joins the point's own nodes. Raises ``UnmeasuredError``.

        The model leaves a loader out, which hides behind the steps unless these wait for it.
        """
        if self.input_wait_fraction is not None and self.input_wait_fraction > INPUT_BOUND:
            waits = percent(self.input_wait_fraction)
            raise UnmeasuredError(f"it waits for its loader {waits} of a step, and the model knows no loader")
        return predicted_phases(self.figures(node.over(self.settings.num_nodes)), self.point, self.samples)

    def as_baseline(self, predicted: tuple[StepTime, ...]) -> Baseline:
        """Beyond the model lie kernels, which more GPUs share, but in decode rounds launches and the host's own work.

        An engine that runs in waves prefills the next sequences while others decode, so its step has no phases. More
        replicas have fewer waves each: all of it is shared.
        """
        shrinks = isinstance(self.settings, Train) or runs_in_waves(self.settings)
        if shrinks or self.prefill_s is None:
            step = BaselinePhase(predicted=whole(predicted), measured_s=self.step_s, beyond_shrinks=shrinks)
            return Baseline((step,))
        prefill, rounds = predicted
        return Baseline(
            (
                BaselinePhase(predicted=prefill, measured_s=self.prefill_s, beyond_shrinks=True),
                BaselinePhase(predicted=rounds, measured_s=self.step_s - self.prefill_s),
            )
        )

    @property
    def power_limited(self) -> tuple[str, ...] | None:
        """GPUs whose clock their power limit held down at some time; ``None`` where no reason was read of any."""
        held_by = {gpu_label(gpu.uuid, gpu.index): gpu.held_by for gpu in self.gpu_states}
        known = {name: words for name, words in held_by.items() if words is not None}
        return tuple(sorted(name for name, words in known.items() if POWER_LIMIT in words)) if known else None

    @property
    def clock_hz(self) -> float | None:
        """SM clock of the GPU with the lowest, each the median over attempts; ``None`` where none was read."""
        return min((gpu.sm_clock_hz for gpu in self.gpu_states if gpu.sm_clock_hz is not None), default=None)


def measured_turns(measurements: Measurements) -> list[MeasuredStep]:
    """Measured points in which an engine and a trainer take turns."""
    points = [point for point in measurements.plan.points if isinstance(point.settings, Turn)]
    return [found for point in points if (found := _measured(point, measurements)) is not None]


def measured_groups(measurements: Measurements) -> list[list[MeasuredStep]]:
    """Measured points of model workloads that differ in their parallel degrees alone, the fewest GPUs first.

    Turns are none of them: they are explained by their phases.
    """
    groups: dict[str, list[MeasuredStep]] = {}
    for point in measurements.plan.points:
        if isinstance(point.settings, Turn):
            continue
        if (measured := _measured(point, measurements)) is not None:
            groups.setdefault(f"{point.benchmark} {sorted(measured.group.items())!r}", []).append(measured)
    return [sorted(group, key=lambda measured: measured.point.num_gpus) for group in groups.values()]


def _measured(point: Point, measurements: Measurements) -> MeasuredStep | None:
    found = measurements.samples(point)
    samples, powers_w, waits = (found.get(name) for name in ("step_s", "mean_power_w", "input_wait_fraction"))
    if samples is None or not isinstance(point.settings, ModelSettings):
        return None
    good = measurements.good(point.id)
    gpus = gpu_names(good)
    joint = [joint_steps(record) for record in good]
    return MeasuredStep(
        point=point,
        step_s=location(samples),
        prefill_s=location([[_prefill_s(step) for step in steps] for steps in joint]) or None,
        samples=float(joint[0][0].work.samples),
        gpus=gpus,
        gpu_states=tuple(state for state in gpu_states(good) if state.uuid in gpus),
        power_w=None if powers_w is None else location(powers_w) / point.num_gpus,
        input_wait_fraction=None if waits is None else location(waits),
    )


def _prefill_s(step: JointStep) -> float:
    start_ns, cut_ns, _ = phase_cuts_ns(step.ranks)
    return (cut_ns - start_ns) / 1e9
