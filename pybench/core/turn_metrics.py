"""Metrics of turns: where the time and the joules between generating and training go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pybench.core.joint_step import JointStep, joint_spans
from pybench.model.record import Energy, GpuEnergy, PhaseEnergy
from pybench.model.suite import Point
from pybench.model.wire import Span
from pybench.model.workloads.turn import CHECK, TRAINING, WORKING, Turn

_OF_PHASES = {
    "generate_s": ("generate",),
    "sleep_s": ("engine_sleep",),
    "trainer_onload_s": ("trainer_onload",),
    "train_s": ("train",),
    "trainer_offload_s": ("trainer_offload",),
    "handover_s": ("handover",),
    "wake_s": ("wake_weights", "wake_cache"),
    "first_token_s": ("first_token",),
}
_FEWEST_FOR_SLOPE = 3


def of_step(point: Point, step: JointStep) -> dict[str, float | None]:
    """The mean turn of a step: seconds of its phases, and what follows from them."""
    settings, spans = _settings(point), [span for span in joint_spans(step.ranks) if span.name != CHECK]
    if not spans:
        return {}

    def seconds(names: Sequence[str] | None = None, without: Sequence[str] = ()) -> float:
        """Of one turn: of all phases or of ``names``, except ``without``."""
        chosen = [span for span in spans if (names is None or span.name in names) and span.name not in without]
        return sum(span.end_ns - span.start_ns for span in chosen) / 1e9 / settings.turns

    turn_s, switch_s = seconds(), seconds(without=WORKING)
    handover_s = seconds(("handover",))
    tokens = (step.work.prompt_tokens + step.work.output_tokens) / settings.turns
    sent = max((rank.values.get("handover_bytes", 0.0) for rank in step.ranks), default=0.0)
    # With async syncing, `generate` contains the half that is read.
    is_whole = bool(handover_s) and not settings.async_weight_syncing
    waiting = settings.num_gpus - settings.num_trainers
    return {
        "turn_s": turn_s,
        "tokens_per_s_per_gpu": tokens / turn_s / settings.num_gpus,
        "switch_s": switch_s,
        "switch_fraction": switch_s / turn_s,
        **{name: seconds(phases) for name, phases in _OF_PHASES.items() if any(span.name in phases for span in spans)},
        "handover_bytes_per_s": sent / handover_s if sent and is_whole else None,
        "resident_asleep_bytes": max(_asleep_bytes(spans), default=None),
        "host_pinned_bytes": max((span.host_bytes for span in spans if span.host_bytes is not None), default=None),
        "idle_gpu_s": waiting * seconds(TRAINING),
        "idle_gpu_fraction": waiting / settings.num_gpus * seconds(TRAINING) / turn_s,
    }


def of_attempt(_point: Point, steps: Sequence[JointStep], _reported: Mapping[str, float]) -> dict[str, float]:
    """Growth of what stays on the GPU asleep: the slope of a straight line through the turns (least squares)."""
    resident = [num_bytes for step in steps for num_bytes in _asleep_bytes(joint_spans(step.ranks))]
    count = len(resident)
    if count < _FEWEST_FOR_SLOPE:
        return {}
    # Of whole numbers, so that equal ones give exactly 0.
    moments = sum((2 * place - count + 1) * value for place, value in enumerate(resident))
    return {"resident_growth_bytes_per_turn": 6 * moments / (count * (count**2 - 1))}


def of_energy(point: Point, steps: Sequence[JointStep], energy: Energy) -> dict[str, float | None]:
    """Joules of a turn's phases; of those in which GPUs wait for the trainer, the waiting GPUs' own."""
    settings = _settings(point)
    num_turns = len(steps) * settings.turns
    phases = [phase for phase in energy.phases if phase.name != CHECK]
    whole = _joules(phases)
    switch = _joules(phase for phase in phases if phase.name not in WORKING)
    # The trainer is on the first GPU of rank 0.
    waiting = [gpu for phase in phases if phase.name in TRAINING for gpu in phase.gpus[1:]]
    idle = _joules(waiting) if settings.num_trainers < settings.num_gpus else None
    return {
        "energy_j_per_turn": None if whole is None else whole / num_turns,
        "switch_energy_fraction": switch / whole if whole and switch is not None else None,
        "idle_energy_j_per_turn": None if idle is None else idle / num_turns,
    }


def _asleep_bytes(spans: Sequence[Span]) -> list[int]:
    """Bytes that stay on the GPU while the engine sleeps."""
    return [span.device_bytes for span in spans if span.name == "engine_sleep" and span.device_bytes is not None]


def _joules(windows: Iterable[PhaseEnergy | GpuEnergy]) -> float | None:
    """Sum of all windows; ``None`` where a window's joules are unknown."""
    joules = [window.energy_j for window in windows]
    known = [energy_j for energy_j in joules if energy_j is not None]
    return sum(known) if known and len(known) == len(joules) else None


def _settings(point: Point) -> Turn:
    assert isinstance(point.settings, Turn)
    return point.settings
