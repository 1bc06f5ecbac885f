"""The work of one step that a work order gives to one replica, and the phases that the step has."""

from __future__ import annotations

from pybench.model.backend import BACKENDS
from pybench.model.wire import Work
from pybench.model.workloads.checkpoint import PHASES, Checkpoint
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate, drawn_lengths
from pybench.model.workloads.registry import AnySettings
from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import CHECK, Turn

_DISCARDED = 2  # sleep level at which the engine's weights are gone


def ordered_work(settings: AnySettings, replica: int) -> Work | None:
    """Work that each rank of a replica reports for a step; ``None`` before an ``auto`` batch size is found."""
    if isinstance(settings, Generate):
        return _generated(settings, replica)
    if isinstance(settings, Train):
        return None if settings.finds_batch_size else Work(samples=settings.effective_batch_size)
    if isinstance(settings, Turn):
        return _taken_turns(settings)
    return Work(samples=settings.batch_size) if isinstance(settings, Evaluate) else Work()


def ordered_replica(settings: AnySettings, rank: int) -> int:
    """The replica that ``rank`` is part of: generation alone has replicas that share nothing."""
    if not isinstance(settings, Generate):
        return 0
    return rank // (BACKENDS[settings.backend].num_processes(settings) // settings.data_parallel)


def ordered_phases(settings: AnySettings) -> tuple[str, ...]:
    """Names of a step's parts on every rank, in order; none where the workload has no phases."""
    if isinstance(settings, Checkpoint):
        return PHASES
    return _phases_of_turn(settings) * settings.turns if isinstance(settings, Turn) else ()


def _phases_of_turn(settings: Turn) -> tuple[str, ...]:
    loaded = ("trainer_onload",) if settings.sleep_level else ()
    switch = ("engine_sleep", *loaded, CHECK, "train", CHECK, *_handed_over(settings))
    if settings.async_weight_syncing:
        return (*switch, "generate", CHECK)
    return ("generate", *switch, "first_token", CHECK)


def _handed_over(settings: Turn) -> tuple[str, ...]:
    """Weights that go from memory to memory leave last; a file and adapters are read when the trainer has left."""
    away = ("trainer_offload",) if settings.sleep_level else ()
    awake = ("wake_weights", *((CHECK,) if settings.sleep_level == _DISCARDED else ()))
    if settings.handover != "file" and settings.lora_rank is None:
        return (*away, *awake, "handover", *away, "wake_cache")
    read = () if settings.async_weight_syncing else ("handover",)
    return ("handover", *away, *awake, *read, "wake_cache")


def _taken_turns(settings: Turn) -> Work:
    samples = settings.turns * settings.batch_size
    return Work(
        prompt_tokens=samples * settings.prompt_tokens,
        output_tokens=samples * settings.output_tokens,
        samples=samples,
    )


def _generated(settings: Generate, replica: int) -> Work:
    requests = tuple(drawn_lengths(settings, replica))
    return Work(
        prompt_tokens=sum(request.prompt_tokens for request in requests),
        output_tokens=sum(request.output_tokens for request in requests),
        samples=len(requests),
    )
