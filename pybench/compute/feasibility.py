"""Whether a point can run on a machine, and every reason why not."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.compute.generate_feasibility import generate_reasons
from pybench.compute.train_feasibility import train_reasons
from pybench.model.backend import BACKENDS
from pybench.model.suite import Architecture, DeviceKind, Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import NodeSettings
from pybench.model.workloads.settings import PARALLEL_AXES, ModelSettings, Settings
from pybench.model.workloads.train import Train

_DEVICE_NOUNS: dict[DeviceKind, str] = {"cuda": "GPU", "cpu": "CPU core"}


def infeasible(point: Point, device: DeviceKind, num_devices: int) -> str | None:
    """Every reason why the point can't run here, joined; ``None`` when it can."""
    reasons = [*_device_reasons(point, device, num_devices), *_workload_reasons(point.settings)]
    if isinstance(point.settings, ModelSettings) and point.architecture is not None:
        reasons += _model_reasons(point.settings, point.architecture)
    if isinstance(point.settings, Generate):
        reasons += generate_reasons(point.settings, device)
    if isinstance(point.settings, Train) and point.architecture is not None:
        reasons += train_reasons(point.settings, point.architecture, device)
    return "; ".join(reasons) or None


def _device_reasons(point: Point, device: DeviceKind, num_devices: int) -> Iterator[str]:
    if point.num_gpus > num_devices:
        plural = "" if point.num_gpus == 1 else "s"
        yield f"needs {point.num_gpus} {_DEVICE_NOUNS[device]}{plural}, found {num_devices}"
    only = BACKENDS[point.settings.backend].device
    if only is not None and only != device:
        yield f"backend {point.settings.backend} runs on GPUs only"


def _workload_reasons(settings: Settings) -> Iterator[str]:
    if settings.workload not in BACKENDS[settings.backend].parallel_axes:
        yield f"backend {settings.backend} has no {settings.workload} workload"
    if isinstance(settings, NodeSettings) and settings.gpus < settings.least_gpus:
        yield f"{settings.workload} needs at least {settings.least_gpus} gpus, found {settings.gpus}"


def _model_reasons(settings: ModelSettings, architecture: Architecture) -> Iterator[str]:
    yield from _backend_reasons(settings, architecture)
    yield from _shape_reasons(settings, architecture)
    batch = settings.shared_samples
    if batch is not None and batch % settings.data_parallel:
        yield f"{batch} samples in a step can't be split over data_parallel {settings.data_parallel}"


def _backend_reasons(settings: ModelSettings, architecture: Architecture) -> Iterator[str]:
    traits = BACKENDS[settings.backend]
    if architecture["model_type"] not in traits.model_types:
        known = ", ".join(traits.model_types)
        yield f"backend {settings.backend} can't build {architecture['model_type']} models, only {known}"
    able = traits.parallel_axes.get(settings.workload, PARALLEL_AXES)
    for axis in PARALLEL_AXES:
        degree = getattr(settings, axis)
        if degree > 1 and axis not in able:
            yield (
                f"backend {settings.backend} can't {settings.workload} with {axis} {degree}, "
                f"only with {' and '.join(able)} above 1"
            )


_SPLIT_BY_TENSOR_PARALLEL = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "key-value heads",
    "hidden_size": "hidden units",
    "intermediate_size": "intermediate units",
}


def _shape_reasons(settings: ModelSettings, architecture: Architecture) -> Iterator[str]:
    degree = settings.tensor_parallel
    for key, noun in _SPLIT_BY_TENSOR_PARALLEL.items():
        size = architecture.get(key)
        if size is not None and size % degree:
            yield f"{size} {noun} of {settings.model} can't be split over tensor_parallel {degree}"
    layers = architecture["num_hidden_layers"]
    if layers < settings.pipeline_parallel:
        yield f"{layers} layers of {settings.model} are fewer than pipeline_parallel {settings.pipeline_parallel}"
    length, limit = settings.longest_sequence_tokens, architecture["max_position_embeddings"]
    if length > limit:
        yield f"{length} tokens in a sequence exceed the {limit} positions of {settings.model}"
