"""A point's predicted step, from its settings and a node's figures."""

from __future__ import annotations

from typing import Literal

from pybench.compute.comm_model.figures import NodeFigures, UnmeasuredError
from pybench.compute.comm_model.generation import GenerationShape, generation_step
from pybench.compute.comm_model.step_time import StepTime
from pybench.compute.comm_model.training import TrainingShape, training_step
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import ModelSettings
from pybench.model.workloads.train import Train

_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Strategies whose weights, gradients and messages the model counts, and how their data-parallel ranks share.
_SHARING: dict[str, Literal["ddp", "fsdp"]] = {
    "ddp": "ddp",
    "tensor_parallel": "ddp",
    "pipeline_parallel": "ddp",
    "fsdp": "fsdp",
}


def predicted_step(figures: NodeFigures, point: Point, samples: float, *, grown: int = 1) -> StepTime:
    """The step of ``point`` with ``samples`` in it, its parallel degree multiplied by ``grown``.

    Raises ``UnmeasuredError`` when the node's run lacks a figure, or the model does not know the point's kind of work.
    """
    settings, architecture = point.settings, point.architecture
    if not isinstance(settings, (Generate, Train)) or architecture is None:
        raise UnmeasuredError(f"the model knows no {settings.workload}")
    if settings.context_parallel > 1:
        raise UnmeasuredError("the model knows no context_parallel")
    if isinstance(settings, Generate):
        return generation_step(figures, architecture, _generation(settings, samples, grown))
    return training_step(figures, architecture, _training(settings, samples, grown))


def _degrees(settings: ModelSettings, grown: int) -> dict[str, int]:
    """Degrees by name, the one that the point raises multiplied: one copy of its model is one kind of parallelism."""
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel")
    degrees = {name: int(getattr(settings, name)) for name in names}
    raised = max(degrees, key=lambda name: degrees[name])
    return {**degrees, raised: degrees[raised] * grown}


def _generation(settings: Generate, samples: float, grown: int) -> GenerationShape:
    degrees = _degrees(settings, grown)
    return GenerationShape(
        samples=max(1, round(samples / degrees["data_parallel"])),
        prompt_tokens=settings.prompt_tokens,
        output_tokens=settings.output_tokens,
        element_bytes=_ELEMENT_BYTES[settings.dtype],
        tensor_parallel=degrees["tensor_parallel"],
        pipeline_parallel=degrees["pipeline_parallel"],
    )


def _training(settings: Train, samples: float, grown: int) -> TrainingShape:
    sharing = _SHARING.get(settings.strategy)
    if sharing is None:
        raise UnmeasuredError(f"the model knows no strategy {settings.strategy}")
    degrees = _degrees(settings, grown)
    return TrainingShape(
        samples=samples / degrees["data_parallel"],
        sequence_tokens=settings.sequence_tokens,
        element_bytes=_ELEMENT_BYTES[settings.dtype],
        sharing=sharing,
        data_parallel=degrees["data_parallel"],
        tensor_parallel=degrees["tensor_parallel"],
        pipeline_parallel=degrees["pipeline_parallel"],
        microbatches=getattr(settings, "microbatches", None) or 1,
        recompute=getattr(settings, "activation_checkpointing", None) == "full",
    )
