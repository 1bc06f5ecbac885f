"""Every metric a point can show, with its unit and its direction."""

from __future__ import annotations

from dataclasses import dataclass

from pybench.model.settings import WorkloadName

_GENERATE: tuple[WorkloadName, ...] = ("generate",)
_TRAIN: tuple[WorkloadName, ...] = ("train",)
_BOTH: tuple[WorkloadName, ...] = ("generate", "train")


@dataclass(frozen=True, kw_only=True)
class MetricTraits:
    """One metric: its unit, whether more is better, and the workloads that yield it."""

    unit: str
    higher_is_better: bool
    workloads: tuple[WorkloadName, ...]
    description: str


def _more(unit: str, workloads: tuple[WorkloadName, ...], description: str) -> MetricTraits:
    return MetricTraits(unit=unit, higher_is_better=True, workloads=workloads, description=description)


def _less(unit: str, workloads: tuple[WorkloadName, ...], description: str) -> MetricTraits:
    return MetricTraits(unit=unit, higher_is_better=False, workloads=workloads, description=description)


METRICS: dict[str, MetricTraits] = {
    "output_tokens_per_s": _more("tokens/s", _GENERATE, "decoded tokens over the step's length, all GPUs together"),
    "total_tokens_per_s": _more("tokens/s", _GENERATE, "prompt and decoded tokens over the step's length"),
    "requests_per_s": _more("requests/s", _GENERATE, "finished sequences over the step's length"),
    "tokens_per_s": _more("tokens/s", _TRAIN, "trained tokens over the step's length, all GPUs together"),
    "samples_per_s": _more("samples/s", _TRAIN, "trained samples over the step's length, all GPUs together"),
    "step_s": _less("s", _BOTH, "length of one step"),
    "ttft_s": _less("s", _GENERATE, "time to first token: from the step's start to its first decoded tokens"),
    "tpot_s": _less("s", _GENERATE, "time per output token after the first"),
    "energy_j": _less("J", _BOTH, "energy of one step, all GPUs together"),
    "energy_j_per_output_token": _less("J/token", _GENERATE, "energy over decoded tokens, all GPUs together"),
    "energy_j_per_token": _less("J/token", _TRAIN, "energy over trained tokens, all GPUs together"),
    "mean_power_w": _less("W", _BOTH, "energy over time while measuring, all GPUs together"),
    "peak_memory_bytes": _less("bytes", _BOTH, "most device memory that one rank's backend held"),
    "startup_s": _less("s", _BOTH, "from the launch to the first warm-up step"),
}
