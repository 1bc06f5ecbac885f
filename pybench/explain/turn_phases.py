"""The phases of a turn: beside the same work as a workload of its own, and beside what they take at least."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pybench.core.flops import num_parameters
from pybench.core.measurements import Measurements
from pybench.core.memory.weights import stored_bytes
from pybench.core.statistics.interval import location
from pybench.explain.comm_model.figures import NodeFigures, UnmeasuredError
from pybench.explain.comm_model.step_time import whole
from pybench.explain.measured_step import MeasuredStep
from pybench.explain.predicted_phases import predicted_phases
from pybench.explain.values import ExplainedPhase, ExplainedTurn
from pybench.model.decoder_shape import DecoderShape
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import DTYPE_BYTES
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn

_METRICS = {
    "generate": "generate_s",
    "train": "train_s",
    "engine_sleep": "sleep_s",
    "trainer_onload": "trainer_onload_s",
    "trainer_offload": "trainer_offload_s",
    "handover": "handover_s",
    "wake": "wake_s",
    "first_token": "first_token_s",
}
"""Phases in the order of their table, the engine's two wakes as one, with the metric of each."""
_KEPT = 1
# Of AdamW, beside each trained weight and in its type.
_MOMENTS = 2
# They change neither how much work there is nor how long it takes.
_OF_GENERATION = ("seed", "gpu_memory_utilization")
_OF_TRAINING = ("seed", "learning_rate", "grad_accum", "global_batch_size", "batch_size_per_gpu")


def explained_turn(figures: NodeFigures, measured: MeasuredStep, measurements: Measurements) -> ExplainedTurn:
    """A measured turn. ``figures`` are the node's, on the turn's own GPUs."""
    values = {name: location(found) for name, found in measurements.samples(measured.point).items()}
    parts = _Parts(figures, measured, values, measurements)
    return ExplainedTurn(
        point_id=measured.point.id,
        turn_s=values["turn_s"],
        switch_s=values["switch_s"],
        phases=tuple(parts.phase(name, values[metric]) for name, metric in _METRICS.items() if metric in values),
    )


@dataclass(frozen=True)
class _Parts:
    """What one turn's phases are held against; ``values`` are the turn's own metrics."""

    figures: NodeFigures
    measured: MeasuredStep
    values: dict[str, float]
    measurements: Measurements

    @property
    def settings(self) -> Turn:
        assert isinstance(self.measured.point.settings, Turn)
        return self.measured.point.settings

    def phase(self, name: str, measured_s: float) -> ExplainedPhase:
        """With its floor, or why it has none, and with the same work alone where that was measured."""
        found = ExplainedPhase(name=name, measured_s=measured_s)
        if (alone := self._alone(name)) is not None:
            alone_s = location(self.measurements.samples(alone)["step_s"])
            found = replace(found, alone_s=alone_s, alone_id=alone.id)
        try:
            return replace(found, floor_s=self._floors()[name]())
        except UnmeasuredError as error:
            return replace(found, reason=str(error))

    def _alone(self, name: str) -> Point | None:
        matches = {"generate": _generates_alike, "train": _trains_alike}.get(name)
        if matches is None:
            return None
        return next((p for p in self._measured_points() if matches(self.settings, p)), None)

    def _measured_points(self) -> Iterator[Point]:
        return (point for point in self.measurements.plan.points if "step_s" in self.measurements.samples(point))

    def _floors(self) -> dict[str, Callable[[], float]]:
        """Seconds of each phase at least: computing at the node's rates, copies over its links; else nothing."""
        figures = self.figures
        asleep, away = self._asleep_bytes, self._away_bytes
        return {
            "generate": lambda: self._predicted_s(self.settings.generation),
            "train": lambda: self._predicted_s(self.settings.training),
            "engine_sleep": lambda: figures.to_host_s(asleep),
            "trainer_onload": lambda: figures.from_host_s(away),
            "trainer_offload": lambda: figures.to_host_s(away),
            "handover": self._handover_s,
            "wake": lambda: figures.from_host_s(asleep),
            "first_token": lambda: self._predicted_s(replace(self.settings.generation, batch_size=1, output_tokens=1)),
        }

    def _predicted_s(self, settings: Generate | Train) -> float:
        point = replace(self.measured.point, settings=settings)
        samples = 1 if isinstance(settings, Generate) and settings.batch_size == 1 else self.settings.batch_size
        return whole(predicted_phases(self.figures, point, samples)).total_s

    def _handover_s(self) -> float:
        """As the worker computed it from the rates of the turn's own GPUs."""
        if "handover_floor_s" not in self.values:
            raise UnmeasuredError("its worker reported no floor of the handover")
        return self.values["handover_floor_s"]

    @property
    def _shape(self) -> DecoderShape:
        assert self.measured.point.shape is not None, "a turn has a model"
        return self.measured.point.shape

    @property
    def _base_bytes(self) -> float:
        return num_parameters(self._shape) * float(DTYPE_BYTES[self.settings.dtype])

    @property
    def _asleep_bytes(self) -> float:
        """Of one GPU's engine, which the host keeps while it sleeps."""
        return self._base_bytes / self.settings.num_gpus if self.settings.sleep_level == _KEPT else 0.0

    @property
    def _away_bytes(self) -> float:
        """Of one of the trainer's GPUs: its share of all weights, and of the moments of those that are trained."""
        frozen = stored_bytes(self.settings.training, self._shape) if self.settings.lora_rank is not None else 0.0
        trained = self.values.get("handover_bytes", self._base_bytes)
        return (frozen + trained * (1 + _MOMENTS)) / self.settings.num_weight_shares


def _generates_alike(turn: Turn, point: Point) -> bool:
    """Whether the point generates what a turn does, at once and with the same engine, which no adapters slow down."""
    own = point.settings
    return (
        turn.lora_rank is None
        and isinstance(own, Generate)
        and _without(own, _OF_GENERATION) == _without(turn.generation, _OF_GENERATION)
    )


def _trains_alike(turn: Turn, point: Point) -> bool:
    """Whether the point's step is a turn's training: by the same ranks and loss, as many passes of as many samples."""
    own, training = point.settings, turn.training
    if turn.loss != "cross_entropy" or not isinstance(own, Train) or own.finds_batch_size:
        return False
    alike = _without(own, _OF_TRAINING) == _without(training, _OF_TRAINING)
    return alike and _passes(own) == _passes(training)


def _passes(settings: Train) -> tuple[int, int]:
    return settings.micro_batch_size, settings.num_passes


def _without(settings: Generate | Train, names: tuple[str, ...]) -> dict[str, object]:
    return {name: value for name, value in settings.to_json().items() if name not in names}
