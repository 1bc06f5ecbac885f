"""Whether a point fits the memory of its GPUs, and what to change where it does not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pybench.core.feasibility.train import train_reasons
from pybench.core.flops import num_parameters
from pybench.core.memory.activations import kept_is_known
from pybench.core.memory.changes import first_that_fit
from pybench.core.memory.generate import generate_bytes, vllm_reason
from pybench.core.memory.train import ESTIMATE_ERROR, host_bytes, train_bytes
from pybench.core.memory.turn import trainer_changes, turn_bytes, turn_reason
from pybench.core.memory.turn_host import turn_host_reason
from pybench.model.decoder_shape import DecoderShape
from pybench.model.devices import Devices
from pybench.model.memory_text import amount_text
from pybench.model.suite import Point
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.rules import Breach, GivenSettings
from pybench.model.workloads.settings import AUTO, DTYPE_BYTES, Settings
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import train_rules
from pybench.model.workloads.train_strategies import STRATEGIES
from pybench.model.workloads.turn import Turn

_CHUNK = 1024
# Without a gradient the loss holds each logit as it is, in float32, and its logarithm in float32.
_FLOAT32_LOSS_BYTES = 8


@dataclass(frozen=True)
class MemoryNeed:
    """Estimated bytes of the GPU that holds most; ``is_least``: parts of what is needed are not in it."""

    num_bytes: float
    is_least: bool

    def __str__(self) -> str:
        """As a user reads it: ``about 29.1 GiB``."""
        return f"{'at least' if self.is_least else 'about'} {amount_text(self.num_bytes)}"


def memory_need(point: Point) -> MemoryNeed | None:
    """Of a point with a model; ``None`` without one.

    Of generation the weights and the cache of one sequence are known, of evaluation the weights and a loss's logits. A
    training that finds its batch size needs at least what one sample does.
    """
    settings, shape = point.settings, point.shape
    if shape is None:
        return None
    if isinstance(settings, Train | Checkpoint):
        return _train_need(settings.training if isinstance(settings, Checkpoint) else settings, shape)
    least = _least_bytes(settings, shape)
    return None if least is None else MemoryNeed(least, is_least=True)


def memory_reason(point: Point, there: Devices) -> str | None:
    """Why the point can't run in the memory that is there, with what to change; ``None`` where it may fit."""
    return _gpu_reason(point, there) or _host_reason(point, there.host_memory_bytes)


def _gpu_reason(point: Point, there: Devices) -> str | None:
    memory_bytes = there.memory_bytes
    need = memory_need(point) if memory_bytes is not None else None
    if memory_bytes is None or need is None or point.shape is None:
        return None
    if isinstance(point.settings, Generate):
        reason = vllm_reason(point.settings, point.shape, memory_bytes, there)
        if reason or point.settings.engine_args:  # which may keep weights in host memory
            return reason
    if isinstance(point.settings, Turn) and (reason := turn_reason(point.settings, point.shape, memory_bytes)):
        return reason
    if need.num_bytes <= memory_bytes * (1 + ESTIMATE_ERROR):
        return None
    changes = _changes(point, memory_bytes)
    remedy = "take more GPUs, a smaller model or a strategy that splits it"
    if changes:
        remedy = f"{'may fit' if need.is_least else 'fits'} with {' or '.join(changes)}"
    return f"needs {need} a GPU, of {amount_text(memory_bytes)}: {remedy}"


def is_tight(point: Point, memory_bytes: float) -> bool:
    """Whether the estimate leaves no room for its error."""
    need = memory_need(point)
    return need is not None and need.num_bytes > _safe_bytes(memory_bytes)


def tight_memory_changes(point: Point, memory_bytes: float) -> tuple[str, ...]:
    """Changes that leave a training room for its estimate's error; none where it has that room already."""
    return _changes(point, _safe_bytes(memory_bytes)) if is_tight(point, memory_bytes) else ()


def most_samples(point: Point, memory_bytes: float) -> int | None:
    """Samples of a rank whose estimate fits, where the worker is to find as many as do; ``None`` for other points.

    What the allocator reserves beyond tensors is in no estimate, so that a worker finds fewer.
    """
    settings, shape = point.settings, point.shape
    if not isinstance(settings, Train) or shape is None or not settings.finds_batch_size:
        return None

    def needed_bytes(size: int) -> float:  # the search trains without control steps
        return train_bytes(replace(settings, batch_size_per_gpu=size, control_steps=None), shape)

    sizes = settings.sizes_to_try
    if isinstance(sizes, range):
        return bisect_right(sizes, memory_bytes, key=needed_bytes)
    # Larger parts of a given batch are fewer passes, which may need less.
    return max((size for size in sizes if needed_bytes(size) <= memory_bytes), default=0)


def _safe_bytes(memory_bytes: float) -> float:
    return memory_bytes * (1 - ESTIMATE_ERROR)


def _host_reason(point: Point, memory_bytes: float | None) -> str | None:
    """Of a training that keeps states in host memory, or of a turn; ranks of one host have one memory."""
    settings, shape = point.settings, point.shape
    if memory_bytes is None or shape is None:
        return None
    if isinstance(settings, Turn):
        return turn_host_reason(settings, shape, memory_bytes)
    if not isinstance(settings, Train):
        return None
    need = host_bytes(settings, shape) / settings.nodes
    if need <= memory_bytes * (1 + ESTIMATE_ERROR):
        return None
    has = f"needs about {amount_text(need)} of host memory, of {amount_text(memory_bytes)}"
    return f"{has}: keep states on GPUs, or take more nodes or a smaller model"


def _least_bytes(settings: Settings, shape: DecoderShape) -> float | None:
    if isinstance(settings, Generate):
        return generate_bytes(settings, shape)
    if isinstance(settings, Evaluate):
        return _evaluation_bytes(settings, shape)
    if isinstance(settings, Turn):
        return turn_bytes(settings, shape)
    return None


def _evaluation_bytes(settings: Evaluate, shape: DecoderShape) -> float:
    """Weights, and all logits of a copy's samples where they are judged by the loss."""
    number = DTYPE_BYTES[settings.dtype]
    weights = float(number * num_parameters(shape))
    if settings.method != "loss" or settings.backend != "torch":
        return weights
    tokens = settings.batch_size * settings.longest_sequence_tokens // settings.data_parallel
    return weights + (number + _FLOAT32_LOSS_BYTES) * tokens * shape.vocabulary


def _train_need(settings: Train, shape: DecoderShape) -> MemoryNeed:
    is_least = not kept_is_known(settings, shape) or settings.strategy == "unsloth" or settings.finds_batch_size
    return MemoryNeed(train_bytes(settings, shape), is_least=is_least)


def _changes(point: Point, memory_bytes: float) -> tuple[str, ...]:
    """Single changes of training, or of a turn's trainer, with which the estimate fits, the smallest first."""
    settings, shape = point.settings, point.shape
    if isinstance(settings, Turn) and shape is not None:
        return trainer_changes(settings, shape, memory_bytes)
    if not isinstance(settings, Train) or shape is None:
        return ()

    broken = _broken(settings)

    def fits(changed: Train) -> bool:
        if train_bytes(changed, shape) > memory_bytes or any(train_reasons(changed, shape, "cuda")):
            return False
        return _broken(changed) <= broken

    return first_that_fit(_candidates(settings, shape), fits)


def _broken(settings: Train) -> set[Breach]:
    """Rules that a suite with these settings would break, which gives those that differ from the defaults."""
    return set(train_rules(GivenSettings(settings.chosen(), {})))


def _candidates(settings: Train, shape: DecoderShape) -> Iterator[tuple[str, str, Train]]:
    yield from _of_passes(settings)
    yield from _of_states(settings, shape)


def _of_passes(settings: Train) -> Iterator[tuple[str, str, Train]]:
    """Changes of what is in memory beside weights, gradients of a lone pass and states."""
    options = STRATEGIES[settings.strategy].options
    if settings.has_control_steps:
        yield "control_steps", "0", replace(settings, control_steps=0)
    if not settings.finds_batch_size and settings.batch_size_per_gpu is not None:
        yield "batch_size_per_gpu", "1", replace(settings, batch_size_per_gpu=1)
    if settings.accumulates:
        yield _in_one_pass(settings)
    if (settings.evaluation_beams or 1) > 1:
        yield "evaluation_beams", "1", replace(settings, evaluation_beams=1)
    if "activation_checkpointing" in options and settings.activation_checkpointing != "full":
        yield "activation_checkpointing", "'full'", replace(settings, activation_checkpointing="full")
    if "loss_chunk_tokens" in options and not settings.loss_chunk_tokens:
        yield "loss_chunk_tokens", f"{_CHUNK}", replace(settings, loss_chunk_tokens=_CHUNK)


def _of_states(settings: Train, shape: DecoderShape) -> Iterator[tuple[str, str, Train]]:
    """Changes of weights, gradients and the optimizer's states."""
    options = STRATEGIES[settings.strategy].options
    if _takes(settings, "optimizer", "adamw_8bit") and settings.optimizer in {None, "adamw"} and not settings.lora_rank:
        yield "optimizer", "'adamw_8bit'", replace(settings, optimizer="adamw_8bit")
    if "weights" in options and settings.lora_rank and shape.num_experts == 1:
        yield "weights", "'nf4'", replace(settings, weights="nf4")
    if "zero_stage" in options:
        yield "zero_stage", "3", replace(settings, zero_stage=3)
        yield "offload_optimizer", "true", replace(settings, offload_optimizer=True)
    if "lora_rank" in options and not settings.lora_rank:
        yield "lora_rank", "8", replace(settings, lora_rank=8)
    if STRATEGIES[settings.strategy].has_buckets and settings.data_parallel > 1:
        yield "strategy", "'fsdp'", replace(settings, strategy="fsdp", control_steps=None)


def _in_one_pass(settings: Train) -> tuple[str, str, Train]:
    """No gradients lie beside what a later pass keeps, and FSDP splits them as they come."""
    if settings.grad_accum != AUTO:
        return "grad_accum", "1", replace(settings, grad_accum=1)
    size = settings.micro_batch_size * settings.num_passes
    return "batch_size_per_gpu", f"{size}", replace(settings, batch_size_per_gpu=size)


def _takes(settings: Train, option: str, value: str) -> bool:
    """Whether the strategy has the option, and no need of another value."""
    traits = STRATEGIES[settings.strategy]
    return option in traits.options and all(value in need.wanted for need in traits.needs if need.other == option)
