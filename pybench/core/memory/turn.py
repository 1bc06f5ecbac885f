"""Memory that the engine and the trainer of a turn take on one GPU, against what the GPU has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pybench.core.feasibility.turn import turn_reasons
from pybench.core.memory.changes import first_that_fit
from pybench.core.memory.generate import LARGEST_SHARE, generate_bytes
from pybench.core.memory.train import ESTIMATE_ERROR, train_bytes
from pybench.model.decoder_shape import DecoderShape
from pybench.model.memory_text import amount_text
from pybench.model.workloads.train_strategies import STRATEGIES
from pybench.model.workloads.turn import Turn

# A share of the memory is named in steps of a twentieth.
_STEPS = 20
# The sleep level of an engine that stays on the GPU.
_AWAKE = 0


def turn_bytes(settings: Turn, shape: DecoderShape) -> float:
    """The least that a turn needs: the trainer lies beside the engine only where that never sleeps."""
    engine, trainer = generate_bytes(settings.generation, shape), _trainer_bytes(settings, shape)
    return engine + trainer if settings.sleep_level == _AWAKE else max(engine, trainer)


def _trainer_bytes(settings: Turn, shape: DecoderShape) -> float:
    """A policy's loss takes each token's log-probability, for which every rank makes all logits."""
    return train_bytes(settings.training, shape, whole_logits=settings.loss == "grpo")


def turn_reason(settings: Turn, shape: DecoderShape, memory_bytes: float) -> str | None:
    """Why vLLM's share of a GPU of ``memory_bytes`` holds no engine, or leaves no room for the trainer beside it.

    vLLM fills ``gpu_memory_utilization`` of the memory, whatever its weights need, and gives it back only asleep. With
    arguments of the engine nothing is refused here: they may put weights or cache elsewhere. ``None`` where it may fit.
    """
    if settings.backend != "vllm" or settings.engine_args:
        return None
    if _trainer_bytes(settings, shape) > memory_bytes * (1 + ESTIMATE_ERROR):
        return None  # no matter of shares
    lacks = _lack(settings, shape, memory_bytes, ESTIMATE_ERROR)
    if lacks is None:
        return None
    changes = first_that_fit(_changes(settings), lambda other: _lack(other, shape, memory_bytes, 0.0) is None)
    rest = "a smaller model" if settings.topology == "shared" else "more GPUs or a smaller model"
    return f"{lacks}: fits with {' or '.join((*changes, rest))}"


def trainer_changes(settings: Turn, shape: DecoderShape, memory_bytes: float) -> tuple[str, ...]:
    """Single changes of a turn's trainer with which the turn fits, the smallest first."""

    def fits(changed: Turn) -> bool:
        if turn_bytes(changed, shape) > memory_bytes or turn_reason(changed, shape, memory_bytes):
            return False
        return not any(turn_reasons(changed, shape, "cuda"))

    return first_that_fit(_trainers(settings), fits)


def _trainers(settings: Turn) -> Iterator[tuple[str, str, Turn]]:
    """A pass of few sequences keeps little; in a lone one, FSDP splits gradients as they come."""
    options = STRATEGIES[settings.strategy].options
    for size in (1, settings.batch_size // settings.training.data_parallel):
        yield "batch_size_per_gpu", f"{size}", replace(settings, batch_size_per_gpu=size)
    if settings.activation_checkpointing != "full":
        yield "activation_checkpointing", "'full'", replace(settings, activation_checkpointing="full")
    if settings.lora_rank and "weights" in options:
        yield "weights", "'nf4'", replace(settings, weights="nf4")


def _lack(settings: Turn, shape: DecoderShape, memory_bytes: float, error: float) -> str | None:
    """What there is too little of, by an estimate of the trainer that may be off by ``error``."""
    utilization = settings.gpu_memory_utilization
    share = utilization * memory_bytes
    taken = f"{amount_text(share)} (gpu_memory_utilization {utilization:g} of {amount_text(memory_bytes)})"
    engine, trainer = generate_bytes(settings.generation, shape), _trainer_bytes(settings, shape)
    if engine > share:
        return f"engine needs at least {amount_text(engine)} a GPU for weights and the cache of a sequence, of {taken}"
    left = memory_bytes - share
    if settings.sleep_level == _AWAKE and trainer > left * (1 + error):
        return (
            f"trainer needs at least {amount_text(trainer)} a GPU, of {amount_text(left)} beside the engine's {taken}"
        )
    return None


def _changes(settings: Turn) -> Iterator[tuple[str, str, Turn]]:
    """Single changes; of the shares the largest comes first, which leaves most to the cache."""
    if settings.sleep_level == _AWAKE:
        yield "sleep_level", "1", replace(settings, sleep_level=1)
    for step in range(round(LARGEST_SHARE * _STEPS), 0, -1):
        share = step / _STEPS
        yield "gpu_memory_utilization", f"{share:g}", replace(settings, gpu_memory_utilization=share)
