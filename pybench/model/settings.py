"""What a point asks of a workload: one frozen dataclass for each workload.

A field's ``Annotated`` metadata is the single source for its limits (:class:`Range`) and its description (a string):
the suite file's checks, the JSON Schema and the README's table are all derived from it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

BackendName = Literal["torch"]
Dtype = Literal["float32", "bfloat16", "float16"]
WorkloadName = Literal["generate", "train"]

PARALLEL_AXES = ("tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel")


@dataclass(frozen=True)
class Range:
    """Inclusive limits of a number; ``None`` leaves that side open."""

    minimum: float | None = None
    maximum: float | None = None


# Upper limits are far above any real use: they exist so that a typing slip (an extra digit row) is refused before it
# runs for a day or asks for a petabyte.
_Parallel = Range(1, 1024)
_Tokens = Range(1, 2**20)
_Batch = Range(1, 2**20)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Fields that every workload has. Lengths are token counts; the parallel degrees multiply to the GPU count."""

    workload: ClassVar[WorkloadName]

    backend: Annotated[BackendName, "library under test"]
    model: Annotated[str, "name of a model shape; `pybench schema` lists them"]
    dtype: Annotated[Dtype, "type of weights and activations"] = "bfloat16"
    tensor_parallel: Annotated[int, _Parallel, "ranks that share every layer"] = 1
    pipeline_parallel: Annotated[int, _Parallel, "stages that share the layers"] = 1
    data_parallel: Annotated[int, _Parallel, "copies that share the samples"] = 1
    context_parallel: Annotated[int, _Parallel, "ranks that share a sequence"] = 1
    seed: Annotated[int, Range(0, 2**31 - 1), "seed of the random weights and tokens"] = 0

    @property
    def num_gpus(self) -> int:
        """Devices one copy of this point occupies: the product of the parallel degrees."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel * self.context_parallel

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the workload's name under ``workload``."""
        return {"workload": self.workload, **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Generate(Settings):
    """Offline batch generation: one step prefills ``batch_size`` prompts and decodes ``output_tokens`` for each."""

    workload: ClassVar[WorkloadName] = "generate"

    batch_size: Annotated[int, _Batch, "sequences in a step, over all GPUs"]
    prompt_tokens: Annotated[int, _Tokens, "prompt length of every sequence, in tokens"]
    output_tokens: Annotated[int, Range(2, 2**20), "tokens decoded for every sequence"]


@dataclass(frozen=True, kw_only=True)
class Train(Settings):
    """Training: one step is forward, backward and optimizer update. Exactly one of the two batch sizes is given."""

    workload: ClassVar[WorkloadName] = "train"

    strategy: Annotated[Literal["ddp"], "how ranks share the work"] = "ddp"
    global_batch_size: Annotated[int | None, _Batch, "samples in a step over all GPUs: strong scaling"] = None
    batch_size_per_gpu: Annotated[int | None, _Batch, "samples in a step on each GPU: weak scaling"] = None
    sequence_tokens: Annotated[int, _Tokens, "sample length, in tokens"]
    learning_rate: Annotated[float, Range(0, 1), "AdamW's learning rate"] = 1e-4

    @property
    def local_batch_size(self) -> int:
        """Samples in a step on each data-parallel rank."""
        if self.batch_size_per_gpu is not None:
            return self.batch_size_per_gpu
        assert self.global_batch_size is not None
        return self.global_batch_size // self.data_parallel


WORKLOADS: dict[WorkloadName, type[Generate | Train]] = {"generate": Generate, "train": Train}


def settings_from_json(values: dict[str, Any]) -> Generate | Train:
    """Rebuild what :meth:`Settings.to_json` wrote. Raises ``KeyError`` or ``TypeError`` on anything else."""
    fields = dict(values)
    return WORKLOADS[fields.pop("workload")](**fields)


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much measuring a point gets."""

    attempts: Annotated[int, Range(1, 100), "worker processes per point: run-to-run spread"] = 3
    max_attempts: Annotated[int, Range(1, 1000), "attempts at most while a verdict is inconclusive"] = 6
    steps: Annotated[int, Range(1, 10_000), "measured iterations per attempt"] = 5
    max_warmup_steps: Annotated[int, Range(0, 1000), "ceiling of the warm-up, in steps"] = 10
    dither_ms: Annotated[
        float, Range(0, 1000), "longest random pause before a measured step: breaks step with sensors"
    ] = 0.0
    time_limit_s: Annotated[float, Range(1, 86_400), "wall clock of one attempt before it is ended"] = 900.0
