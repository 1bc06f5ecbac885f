"""The predicted phases of a point's step, and the work that the model refuses to predict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pybench.explain.generation import generation_phases
from pybench.explain.rates import NodeRates, UnmeasuredError
from pybench.explain.step_time import StepTime
from pybench.explain.training import training_step
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import AUTO, PARALLEL_AXES, ModelSettings
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_rules import UNPREDICTED
from pybench.model.workloads.train_strategies import STRATEGIES

# The degree that needs least fabric first.
_DEGREES = ("data_parallel", "pipeline_parallel", "context_parallel", "tensor_parallel")


def predicted_phases(rates: NodeRates, point: Point, samples: float, *, grown: int = 1) -> tuple[StepTime, ...]:
    """The phases of ``point``'s step with ``samples`` in it, its parallel degree multiplied by ``grown``.

    Generation has two phases, prefill and all decode rounds; training has one. Raises ``UnmeasuredError`` when the
    node's run lacks a rate, or the model does not know the point's work.
    """
    _refuse_unknown(point)
    settings, decoder = point.settings, point.shape
    assert decoder is not None, "a model without a shape was refused"
    assert isinstance(settings, (Generate, Train)), "other work was refused"
    degree = raised_degree(settings)
    degrees: dict[str, Any] = {degree: int(getattr(settings, degree)) * grown}
    grown_settings = replace(settings, **degrees)
    if isinstance(grown_settings, Generate):
        return generation_phases(rates, decoder, grown_settings, samples)
    return (training_step(rates, decoder, grown_settings, samples),)


def raised_degree(settings: ModelSettings) -> str:
    """The parallel degree that more GPUs would raise: the highest; of equal ones, that which needs least fabric."""
    return max(_DEGREES, key=lambda name: int(getattr(settings, name)))


def runs_in_waves(settings: ModelSettings) -> bool:
    """Whether an engine runs fewer sequences at a time than a replica has."""
    if not isinstance(settings, Generate) or settings.max_num_seqs is None:
        return False
    return settings.max_num_seqs * settings.data_parallel < settings.batch_size


def _refuse_unknown(point: Point) -> None:
    """Raise ``UnmeasuredError``, naming the setting, for work that the model would leave out silently."""
    settings = point.settings
    if not isinstance(settings, (Generate, Train)) or point.architecture is None:
        raise UnmeasuredError(f"the model knows no {settings.workload}")
    raised = [name for name in PARALLEL_AXES if int(getattr(settings, name)) > 1]
    if settings.num_nodes > 1 and len(raised) > 1:
        raise UnmeasuredError(f"over nodes the model knows one parallel degree ({', '.join(raised)} here)")
    unknown = {
        # The node's rates were measured without those variables.
        "variables of a benchmark's own (environment)": bool(settings.environment),
        **(_of_generation(settings) if isinstance(settings, Generate) else _of_training(settings)),
    }
    if isinstance(settings, Train) and point.shape is not None and point.shape.num_experts > 1:
        is_selective = settings.activation_checkpointing == "selective"
        unknown["compiled experts (compile)"] = bool(settings.compile)
        unknown["selective activation_checkpointing of experts"] = is_selective
    for name, is_set in unknown.items():
        if is_set:
            raise UnmeasuredError(f"the model knows no {name}")


def _of_generation(settings: Generate) -> dict[str, bool]:
    split = settings.tensor_parallel * settings.pipeline_parallel > 1
    return {
        "context_parallel": settings.context_parallel > 1,
        "requests that come one by one (concurrency)": settings.concurrency is not None,
        "requests that come one by one (request_rate_per_s)": settings.request_rate_per_s is not None,
        "lengths that differ (length_spread_fraction)": settings.length_spread_fraction > 0,
        "prompts that are computed in part (prefix_caching)": bool(settings.prefix_caching),
        "quantization": settings.quantization is not None,
        "engine_args": bool(settings.engine_args),
        "split model that runs part of its sequences at a time (max_num_seqs)": split and runs_in_waves(settings),
    }


def _of_training(settings: Train) -> dict[str, bool]:
    strategy = STRATEGIES[settings.strategy]
    found_passes = settings.finds_batch_size and settings.grad_accum == AUTO
    # Chunks over split weights: no run has measured them.
    chunks = settings.context_parallel > 1 and strategy.parallel_axes != ("context_parallel",)
    is_selective = settings.activation_checkpointing == "selective"
    passes = not strategy.exchanges_once and (found_passes or settings.num_passes > 1)
    return {
        f"strategy {settings.strategy}": strategy.sharing is None,
        f"context_parallel of {settings.strategy}": chunks,
        f"float32 weights of {settings.strategy}": strategy.sharing == "zero" and settings.dtype == "float32",
        **{
            work: (value := getattr(settings, name)) is not None and (values is None or value in values)
            for name, (work, values) in UNPREDICTED.items()
        },
        f"grad_accum of {settings.strategy}": passes,
        "selective activation_checkpointing of weights = 'nf4'": settings.weights == "nf4" and is_selective,
        "number of passes that was found by trying (batch_size_per_gpu, grad_accum)": found_passes,
    }
