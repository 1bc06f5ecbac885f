"""Expand a suite's axes to points, and say which of them can't run here and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from pybench.model.backend import BACKENDS
from pybench.model.settings import PARALLEL_AXES, WORKLOADS, Generate, Train
from pybench.model.suite import Architecture, AxisValue, Benchmark, DeviceKind, Plan, Point, Skip, Suite

_DEVICE_NOUNS: dict[DeviceKind, str] = {"cuda": "GPU", "cpu": "CPU core"}


def expand(
    suite: Suite,
    architectures: Mapping[str, Architecture],
    *,
    device: DeviceKind,
    num_devices: int,
    max_gpus: int | None = None,
    keep: Callable[[str], bool] = lambda _: True,
) -> Plan:
    """List the suite's points in the order they run: benchmarks as written, the last axis turning fastest.

    A point that ``keep`` refuses by its id is left out altogether; one above ``max_gpus`` goes to ``Plan.left_out``;
    one that can't run goes to ``Plan.skips`` with its reason.
    """
    points: list[Point] = []
    skips: list[Skip] = []
    left_out: list[Skip] = []
    for point in _points(suite, architectures):
        if not keep(point.id):
            continue
        if max_gpus is not None and point.num_gpus > max_gpus:
            left_out.append(_skip(point, f"left out by --max-gpus {max_gpus}"))
        elif reason := _impossible(point, device, num_devices):
            skips.append(_skip(point, reason))
        else:
            points.append(point)
    return Plan(points=tuple(points), skips=tuple(skips), left_out=tuple(left_out))


def _points(suite: Suite, architectures: Mapping[str, Architecture]) -> Iterator[Point]:
    for benchmark in suite.benchmarks:
        for values in product(*benchmark.axes.values()):
            axes = dict(zip(benchmark.axes, values, strict=True))
            yield _point(benchmark, axes, architectures)


def _point(benchmark: Benchmark, axes: dict[str, AxisValue], architectures: Mapping[str, Architecture]) -> Point:
    settings = _settings(benchmark, axes)
    return Point(
        id=point_id(benchmark.name, axes),
        benchmark=benchmark.name,
        axes=axes,
        settings=settings,
        effort=benchmark.effort,
        architecture=architectures[settings.model],
    )


def _settings(benchmark: Benchmark, axes: Mapping[str, AxisValue]) -> Generate | Train:
    workload = next(kind for name, kind in WORKLOADS.items() if name == benchmark.workload)
    return workload(**{**benchmark.settings, **axes})


def point_id(benchmark: str, axes: Mapping[str, AxisValue]) -> str:
    """Readable name of a point, e.g. ``decode[backend=torch,tensor_parallel=2]``; without axes, the benchmark's."""
    if not axes:
        return benchmark
    return f"{benchmark}[{','.join(f'{name}={value}' for name, value in axes.items())}]"


def _skip(point: Point, reason: str) -> Skip:
    return Skip(id=point.id, benchmark=point.benchmark, axes=point.axes, num_gpus=point.num_gpus, reason=reason)


def _impossible(point: Point, device: DeviceKind, num_devices: int) -> str | None:
    """Every reason why the point can't run here, joined; ``None`` when it can."""
    reasons = [
        *_device_reasons(point, device, num_devices),
        *_backend_reasons(point.settings, point.architecture),
        *_shape_reasons(point.settings, point.architecture),
        *_batch_reasons(point.settings),
    ]
    return "; ".join(reasons) or None


def _device_reasons(point: Point, device: DeviceKind, num_devices: int) -> Iterator[str]:
    if point.num_gpus > num_devices:
        plural = "" if point.num_gpus == 1 else "s"
        yield f"needs {point.num_gpus} {_DEVICE_NOUNS[device]}{plural}, found {num_devices}"


def _backend_reasons(settings: Generate | Train, architecture: Architecture) -> Iterator[str]:
    traits = BACKENDS[settings.backend]
    if architecture["model_type"] not in traits.model_types:
        known = ", ".join(traits.model_types)
        yield f"backend {settings.backend} can't build {architecture['model_type']} models, only {known}"
    reach = traits.parallel_axes
    if settings.workload not in reach:
        yield f"backend {settings.backend} has no {settings.workload} workload"
        return
    able = reach[settings.workload]
    for axis in PARALLEL_AXES:
        degree = getattr(settings, axis)
        if degree > 1 and axis not in able:
            yield (
                f"backend {settings.backend} can't {settings.workload} with {axis} {degree}, "
                f"only with {' and '.join(able)} above 1"
            )


def _shape_reasons(settings: Generate | Train, architecture: Architecture) -> Iterator[str]:
    degree = settings.tensor_parallel
    for key, noun in _SPLIT_BY_TENSOR_PARALLEL.items():
        size = architecture.get(key)
        if size is not None and size % degree:
            yield f"{size} {noun} of {settings.model} can't be split over tensor_parallel {degree}"
    layers = architecture["num_hidden_layers"]
    if layers < settings.pipeline_parallel:
        yield f"{layers} layers of {settings.model} are fewer than pipeline_parallel {settings.pipeline_parallel}"
    length, limit = _sequence_tokens(settings), architecture["max_position_embeddings"]
    if length > limit:
        yield f"{length} tokens in a sequence exceed the {limit} positions of {settings.model}"


_SPLIT_BY_TENSOR_PARALLEL = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "key-value heads",
    "hidden_size": "hidden units",
    "intermediate_size": "intermediate units",
}


def _sequence_tokens(settings: Generate | Train) -> int:
    if isinstance(settings, Train):
        return settings.sequence_tokens
    return settings.prompt_tokens + settings.output_tokens


def _batch_reasons(settings: Generate | Train) -> Iterator[str]:
    batch = settings.global_batch_size if isinstance(settings, Train) else settings.batch_size
    if batch is not None and batch % settings.data_parallel:
        yield f"{batch} samples in a step can't be split over data_parallel {settings.data_parallel}"
