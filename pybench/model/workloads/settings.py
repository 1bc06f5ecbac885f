"""Fields that workloads share.

A field's ``Annotated`` metadata is the single source for its limits (:class:`Range`) and its description (a string):
the suite file's checks, the JSON Schema and the tables of docs/ are all derived from it.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, TypeVar

LARGEST = 1e60
"""Far beyond any quantity that is measured; sums of squares stay finite."""
INTEGERS = range(-(2**63), 2**63)
"""64 bits: enough for every clock and count."""


@dataclass(frozen=True)
class Range:
    """Inclusive limits of a number; ``None`` leaves that side open."""

    minimum: float | None = None
    maximum: float | None = None


BackendName = Literal["torch", "transformers", "vllm", "tensorrt_llm", "server"]
Dtype = Literal["float32", "bfloat16", "float16"]
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1}
"""Bytes of a number of each type: :data:`Dtype`, and what weights and caches are quantised to."""

LoraTargets = Literal["query_value", "attention", "all_linear"]
WorkloadName = str
"""Name of one of ``registry.WORKLOADS``."""

PARALLEL_AXES = ("tensor_parallel", "pipeline_parallel", "data_parallel", "context_parallel")
RANK_ORDER = ("pipeline_parallel", "data_parallel", "context_parallel", "tensor_parallel")
"""How ranks are numbered by their places in the parallel degrees, the slowest first: tensor parallelism talks most, so
its ranks are neighbours. Hosts have ranks that follow each other."""
GPU_AXES = (*PARALLEL_AXES, "gpus")
"""Axes that multiply the GPUs of a point, whatever its workload."""

ALL_GPUS = "all"
"""Value of an axis of GPUs: every GPU that the run may use (``pybench.core.plan``)."""
REST = "rest"
"""Value of a degree: the GPUs that the other degrees of a point leave (``pybench.core.plan``)."""
INSTALLED = "installed"
"""A value of the axis ``backend``: every installed backend that has the workload."""
AUTO = "auto"
"""A value of a number in training that the worker finds or computes."""

# Upper limits are far above any real use: they exist so that a typing slip (an extra digit row) is refused before it
# runs for a day or allocates a petabyte.
Degree = Range(1, 1024)
Tokens = Range(1, 2**20)
BatchSize = Range(1, 2**20)
Nodes = Range(1, 1024)
NODES = "nodes"
ENVIRONMENT = "environment"
MODEL_CONFIG = "model_config"
"""A suite's key for a config file instead of ``model``; settings have the name alone."""

_Kind = TypeVar("_Kind", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Fields that every workload has."""

    workload: WorkloadName
    backend: Annotated[BackendName, "library under test"]
    seed: Annotated[int, Range(0, 2**31 - 1), "seed of random weights, tokens and data"] = 0
    environment: Annotated[str | None, "variables that tune workers: `NAME=VALUE`, with a space between several"] = None

    @property
    def num_gpus(self) -> int:
        """Devices that the point occupies."""
        raise NotImplementedError

    @property
    def num_nodes(self) -> int:
        """Hosts, with equal numbers of devices; 1 for a workload without the setting."""
        return int(getattr(self, NODES, 1))

    @property
    def num_gpus_per_node(self) -> int:
        """Devices that the point occupies on each of its hosts, rounded up."""
        return -(-self.num_gpus // self.num_nodes)

    def to_json(self) -> dict[str, Any]:
        """Plain values by field."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def part(self, kind: type[_Kind], **given: Any) -> _Kind:  # noqa: ANN401 - values of settings
        """Settings of a part of the work: ``given`` ones, and the values of the fields that both workloads have."""
        names = {field.name for field in fields(kind)} - {"workload", *given}
        return kind(**{name: value for name, value in self.to_json().items() if name in names}, **given)

    def chosen(self) -> dict[str, Any]:
        """Plain values of the fields that differ from their defaults, and of those without one."""
        usual = {**defaults(type(self)), "workload": None}
        return {name: value for name, value in self.to_json().items() if name not in usual or value != usual[name]}


def defaults(kind: type[Settings]) -> dict[str, object]:
    """The fields that have a default, each with it."""
    named = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(kind)
    }
    return {name: value for name, value in named.items() if value is not MISSING}


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """Fields of workloads that run a model. Lengths are token counts."""

    model: Annotated[str, "name of a model shape; `pybench schema` lists them"]
    dtype: Annotated[Dtype, "type of weights and activations"] = "bfloat16"
    tensor_parallel: Annotated[int, Degree, "ranks that share every layer"] = 1
    pipeline_parallel: Annotated[int, Degree, "stages that share the layers"] = 1
    data_parallel: Annotated[int, Degree, "replicas that share the samples"] = 1
    context_parallel: Annotated[int, Degree, "ranks that share a sequence"] = 1

    @property
    def num_gpus(self) -> int:
        """Devices that the point occupies: the product of the parallel degrees."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel * self.context_parallel

    @property
    def longest_sequence_tokens(self) -> int:
        """Tokens of the longest sequence that the model sees."""
        raise NotImplementedError


# A step of many operations is long against a clock's grain; a typing slip must not make it a day.
Repeats = Range(1, 100_000)
# 16 TiB: more than any device holds.
Bytes = Range(1, 2**44)


@dataclass(frozen=True, kw_only=True)
class NodeSettings(Settings):
    """Settings of a workload that runs one rank on each of ``gpus`` devices and no model."""

    least_gpus: ClassVar[int] = 1

    gpus: Annotated[int, Degree, "GPUs (CPU cores without any) that take part, each with one rank"] = 1

    @property
    def num_gpus(self) -> int:
        """Devices that the point occupies."""
        return self.gpus
