"""What the model of step times does not know: work of which a prediction would be a guess."""

from __future__ import annotations

from pybench.explain.comm_model.figures import UnmeasuredError
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.settings import AUTO, PARALLEL_AXES, ModelSettings
from pybench.model.workloads.train import Train
from pybench.model.workloads.train_options import OPTION_TRAITS
from pybench.model.workloads.train_strategies import STRATEGIES


def refuse_unknown(point: Point) -> None:
    """Raises ``UnmeasuredError``, naming the setting, for what the model would leave out without a word."""
    settings = point.settings
    if not isinstance(settings, (Generate, Train)) or point.architecture is None:
        raise UnmeasuredError(f"the model knows no {settings.workload}")
    if settings.num_nodes > 1 and len(_raised(settings)) > 1:
        raise UnmeasuredError(f"over nodes the model knows one parallel degree ({', '.join(_raised(settings))} here)")
    unknown = _of_generation(settings) if isinstance(settings, Generate) else _of_training(settings)
    if isinstance(settings, Train) and point.shape is not None and point.shape.num_experts > 1:
        unknown |= _of_mixtures(settings)
    for name, is_set in {**_of_all(settings), **unknown}.items():
        if is_set:
            raise UnmeasuredError(f"the model knows no {name}")


def _raised(settings: ModelSettings) -> list[str]:
    return [name for name in PARALLEL_AXES if int(getattr(settings, name)) > 1]


def _of_all(settings: ModelSettings) -> dict[str, bool]:
    # The node's own figures are without those variables.
    own = "variables of a benchmark's own (environment)"
    return {own: bool(settings.environment)}


def runs_in_waves(settings: ModelSettings) -> bool:
    """Whether an engine runs fewer sequences at a time than a replica has."""
    if not isinstance(settings, Generate) or settings.max_num_seqs is None:
        return False
    return settings.max_num_seqs * settings.data_parallel < settings.batch_size


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


def _of_mixtures(settings: Train) -> dict[str, bool]:
    """What a compiler makes of experts is not known; selective checkpointing keeps no grouped products."""
    return {
        "compiled experts (compile)": bool(settings.compile),
        "selective activation_checkpointing of experts": settings.activation_checkpointing == "selective",
    }


def _of_training(settings: Train) -> dict[str, bool]:
    strategy = STRATEGIES[settings.strategy]
    found = settings.finds_batch_size and settings.grad_accum == AUTO
    # Of whole copies of the model: no run has measured chunks over split weights.
    chunks = settings.context_parallel > 1 and strategy.parallel_axes != ("context_parallel",)
    is_selective = settings.activation_checkpointing == "selective"
    passes = not strategy.exchanges_once and (found or settings.num_passes > 1)
    return {
        f"strategy {settings.strategy}": strategy.sharing is None,
        f"context_parallel of {settings.strategy}": chunks,
        f"float32 weights of {settings.strategy}": strategy.sharing == "zero" and settings.dtype == "float32",
        **{
            traits.work: traits.is_unpredicted(getattr(settings, name))
            for name, traits in OPTION_TRAITS.items()
            if traits.is_unpredicted is not None
        },
        f"grad_accum of {settings.strategy}": passes,
        "selective activation_checkpointing of weights = 'nf4'": settings.weights == "nf4" and is_selective,
        "number of passes that was found by trying (batch_size_per_gpu, grad_accum)": found,
    }
