"""Whether a point can run on a machine, and every reason why not."""

from __future__ import annotations

from collections.abc import Iterator

from pybench.core.train_feasibility import train_reasons
from pybench.model.backend import BACKENDS
from pybench.model.decoder_shape import DecoderShape
from pybench.model.machine import DeviceKind, Devices
from pybench.model.servers import server_reasons
from pybench.model.suite import Point
from pybench.model.text import listed, plural
from pybench.model.workloads.checkpoint import Checkpoint
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Collective
from pybench.model.workloads.settings import PARALLEL_AXES, ModelSettings, NodeSettings, Settings, defaults
from pybench.model.workloads.train import Train
from pybench.model.workloads.traits import GivenSettings, Reason
from pybench.model.workloads.turn import Turn, turn_rules

_DEVICE_NOUNS: dict[DeviceKind, str] = {"cuda": "GPU", "cpu": "CPU core"}


def infeasible(point: Point, there: Devices) -> Iterator[Reason]:
    """Every reason why the point can't run on what is there."""
    settings, shape, device = point.settings, point.shape, there.kind
    yield from _device_reasons(point, there)
    yield from _workload_reasons(settings, device)
    yield from type_reasons(settings, shape, there)
    if isinstance(settings, ModelSettings) and shape is not None:
        yield from _backend_reasons(settings, shape)
        yield from shape_reasons(settings, shape)
        yield from batch_reasons(settings)
    if isinstance(settings, Generate):
        yield from generate_reasons(settings, device)
    elif isinstance(settings, Evaluate):
        yield from option_reasons(settings)
    elif isinstance(settings, Train | Checkpoint) and shape is not None:
        training = settings.training if isinstance(settings, Checkpoint) else settings
        yield from train_reasons(training, shape, device)
    elif isinstance(settings, Turn) and shape is not None:
        yield from turn_reasons(settings, shape, device)


def lacking(point: Point, there: Devices) -> Reason | None:
    """The resource that the point lacks, such as ``8 GPUs (4 here)``; ``None`` when there is enough."""
    if BACKENDS[point.settings.backend].device not in {None, there.kind}:
        return "device", f"{point.settings.backend} (needs GPUs)"
    where = "planned for" if there.assumed else "here"
    nodes, each = point.settings.num_nodes, point.settings.num_gpus_per_node
    if nodes > there.num_hosts:
        return "nodes", f"{nodes} nodes ({there.num_hosts} {where})"
    if each <= there.count:
        return None
    gpus = f"{plural(each, _DEVICE_NOUNS[there.kind])}{' on each node' if nodes > 1 else ''}"
    return "gpus", f"{gpus} ({there.count} {where})"


def _device_reasons(point: Point, there: Devices) -> Iterator[Reason]:
    nodes, each, noun = point.settings.num_nodes, point.settings.num_gpus_per_node, _DEVICE_NOUNS[there.kind]
    if nodes > there.num_hosts:
        yield "nodes", f"needs {nodes} nodes, found {there.num_hosts}"
    if point.num_gpus % nodes:
        yield "uneven", f"{plural(point.num_gpus, noun)} can't be spread evenly over {nodes} nodes"
    if each > there.count:
        yield "gpus", f"needs {plural(each, noun)}{' on each node' if nodes > 1 else ''}, found {there.count}"
    if BACKENDS[point.settings.backend].device not in {None, there.kind}:
        yield "device", f"backend {point.settings.backend} runs on GPUs only"


def _workload_reasons(settings: Settings, kind: DeviceKind) -> Iterator[Reason]:
    if settings.workload not in BACKENDS[settings.backend].parallel_axes:
        yield "unsupported", f"backend {settings.backend} has no {settings.workload} workload"
    elif settings.num_nodes > 1 and settings.workload not in BACKENDS[settings.backend].over_nodes:
        yield "unsupported", f"backend {settings.backend} has {settings.workload} on one node only"
    if settings.num_nodes > 1 and settings.environment:
        yield "settings", "environment reaches the workers of one node only: export the variables on every node instead"
    if isinstance(settings, NodeSettings) and settings.gpus < settings.least_gpus:
        yield "gpus", f"needs at least {plural(settings.least_gpus, _DEVICE_NOUNS[kind])}, found {settings.gpus}"
    if isinstance(settings, Collective) and settings.operation == "bisection":
        halves = {"gpus": settings.gpus, "nodes": settings.nodes if settings.nodes > 1 else 2}
        for name in (name for name, count in halves.items() if count % 2):
            yield "uneven", f"{name} {halves[name]} can't be halved (bisection)"


def batch_reasons(settings: ModelSettings) -> Iterator[Reason]:
    """Why the samples of a step can't be split over the replicas that share them."""
    batch = getattr(settings, "batch_size", getattr(settings, "global_batch_size", None))
    if batch is not None and batch % settings.data_parallel:
        yield "uneven", f"{batch} samples in a step can't be split over data_parallel {settings.data_parallel}"


def _backend_reasons(settings: ModelSettings, shape: DecoderShape) -> Iterator[Reason]:
    traits, name = BACKENDS[settings.backend], f"backend {settings.backend}"
    if shape.model_type not in traits.model_types:
        known = ", ".join(traits.model_types)
        yield "unsupported", f"{name} can't build {shape.model_type} models, only {known}"
    if settings.tensor_parallel > 1 and (parts := traits.unsplit_types.get(shape.model_type)):
        yield "unsupported", f"{name} can't split the {parts} of {shape.model_type} over tensor_parallel ranks"
    if isinstance(settings, Generate) and settings.quantization in {"awq", "bitsandbytes"} and shape.num_experts > 1:
        experts = f"the experts of {settings.model} are none"
        yield "unsupported", f"quantization {settings.quantization!r} packs linear layers; {experts}"
    able = traits.parallel_axes.get(settings.workload, PARALLEL_AXES)
    for axis in PARALLEL_AXES:
        degree = getattr(settings, axis)
        if degree > 1 and axis not in able:
            only = f"only with {listed(able)} above 1"
            yield "unsupported", f"{name} can't {settings.workload} with {axis} {degree}, {only}"


_SPLIT_BY_TENSOR_PARALLEL = {
    "heads": "attention heads",
    "key_value_heads": "key-value heads",
    "hidden": "hidden units",
    "intermediate": "intermediate units",
    "vocabulary": "tokens in the vocabulary",
}


def shape_reasons(settings: ModelSettings, shape: DecoderShape) -> Iterator[Reason]:
    """Why a model of this shape can't be split as the settings have it, or hold their sequences."""
    degree = settings.tensor_parallel
    padded = {"vocabulary"} if BACKENDS[settings.backend].pads_vocabulary else set()
    sizes = {noun: getattr(shape, name) for name, noun in _SPLIT_BY_TENSOR_PARALLEL.items() if name not in padded}
    uneven = [f"{size} {noun}" for noun, size in sizes.items() if size % degree]
    if uneven:
        yield "uneven", f"{', '.join(uneven)} of {settings.model} can't be split over tensor_parallel {degree}"
    if shape.layers < (stages := settings.pipeline_parallel):
        yield "uneven", f"{shape.layers} layers of {settings.model} are fewer than pipeline_parallel {stages}"
    length = settings.context_tokens if isinstance(settings, Generate) else settings.longest_sequence_tokens
    limit = shape.max_positions
    if limit is not None and length > limit:
        yield "length", f"{length} tokens in a sequence exceed the {limit} positions of {settings.model}"


_SPLIT_WEIGHTS_OF = ("llama", "qwen2", "qwen3")


def turn_reasons(settings: Turn, shape: DecoderShape, device: DeviceKind) -> Iterator[Reason]:
    """Every reason why the point can't run; the file's rules again, since a degree may be a word there."""
    broken = list(turn_rules(GivenSettings(settings.to_json(), {})))
    for breach in broken:
        yield "settings", f"{breach.key}: {breach.message}" if breach.key else breach.message
    yield from generate_reasons(settings.generation, device)
    if shape.model_type not in _SPLIT_WEIGHTS_OF:
        yield "unsupported", f"weights are handed over to {', '.join(_SPLIT_WEIGHTS_OF)} only, not {shape.model_type}"
    if settings.tensor_parallel > 1 and shape.tied_embeddings:
        ties = f"{settings.model} ties its head to its embedding, which the engine would split"
        yield "unsupported", f"{ties}: take a model with a head of its own, or one GPU"
    if not broken:
        yield from train_reasons(settings.training, shape, device)


_LEAST = {
    "bfloat16": (8, 0),
    "tfloat32": (8, 0),
    "float8_e4m3fn": (8, 9),
    # Weights alone: vLLM's kernels unpack them on GPUs without FP8 units, from this capability on.
    "fp8": (7, 5),
}
_SETTINGS = ("dtype", "mixed_precision", "precision", "burn_precision", "quantization")
"""Settings whose value is a type to compute in. What ``element`` names is moved and added only."""
_UNITS_ONLY = ("tfloat32", "float8_e4m3fn")
"""Types that a CPU has no substitute for."""


def has_type(name: str, there: Devices) -> bool:
    """Whether what is there computes in the type; a GPU that does not report its capability is taken to."""
    if there.kind == "cpu":
        return name not in _UNITS_ONLY
    return there.compute_capability is None or there.compute_capability >= _LEAST.get(name, (0, 0))


def type_reasons(settings: Settings, shape: DecoderShape | None, there: Devices) -> Iterator[Reason]:
    """Every setting that names a type which the devices, or the backend for this model, do not compute in."""
    overflows = shape is not None and shape.model_type in BACKENDS[settings.backend].not_in_float16
    for setting in _SETTINGS:
        value = getattr(settings, setting, None)
        if value is None or has_type(value, there):
            continue
        remedy = f"set {setting} = {'bfloat16' if has_type('bfloat16', there) else 'float16'!r}"
        if setting in {"mixed_precision", "quantization"}:
            remedy = f"remove {setting}"
        elif setting == "precision" and value == "tfloat32":
            remedy = "set precision = 'float32'"
        # AdamW's epsilon of 1e-8 is 0 in float16, so training takes no float16; nor do models whose sums overflow.
        elif setting == "dtype" and (overflows or not isinstance(settings, Generate | Evaluate)):
            remedy = "set dtype = 'float32'"
        least, found = (
            "none" if size is None else f"{size[0]}.{size[1]}" for size in (_LEAST[value], there.compute_capability)
        )
        yield "number_type", f"{setting} = {value!r} needs GPUs of compute capability {least}, found {found}: {remedy}"
    if isinstance(settings, Generate) and settings.dtype == "float16" and shape is not None and overflows:
        name = f"backend {settings.backend} has no float16 for {shape.model_type}"
        yield "number_type", f"{name}: set dtype = 'bfloat16' or 'float32'"


# Options that some backends lack.
_OPTIONS = {option for traits in BACKENDS.values() for option in traits.options}


def option_reasons(settings: Settings) -> Iterator[Reason]:
    """Every optional setting that the backend has no way to honour."""
    for name, default in defaults(type(settings)).items():
        if name in _OPTIONS - {*BACKENDS[settings.backend].options} and getattr(settings, name) != default:
            able = listed(other for other, traits in BACKENDS.items() if name in traits.options)
            yield "unsupported", f"backend {settings.backend} has no {name}, only {able}"


def generate_reasons(settings: Generate, device: DeviceKind) -> Iterator[Reason]:
    """Every setting that the backend can't honour here."""
    traits = BACKENDS[settings.backend]
    yield from option_reasons(settings)
    if settings.quantization and traits.quantizations and settings.quantization not in traits.quantizations:
        able = ", ".join(traits.quantizations)
        yield "unsupported", f"backend {settings.backend} has no quantization {settings.quantization!r}, only {able}"
    if settings.quantization == "bitsandbytes" and settings.tensor_parallel > 1:
        yield "unsupported", "quantization 'bitsandbytes' packs whole weights, which tensor_parallel would split"
    yield from _of_requests(settings)
    if settings.backend == "server":
        yield from server_reasons(settings, device)
    if settings.nodes % settings.data_parallel and settings.data_parallel % settings.nodes:
        remedy = "give each node whole replicas, or each replica whole nodes"
        yield "uneven", f"data_parallel {settings.data_parallel} can't be spread over {settings.nodes} nodes: {remedy}"
    above_one = [axis for axis in PARALLEL_AXES if getattr(settings, axis) > 1]
    for axis in above_one:
        others = [other for other in above_one if other != axis]
        if axis in traits.lone_axes and others:
            yield "unsupported", f"backend {settings.backend} has {axis} alone, not with {others[0]}"
        if axis in traits.gpu_axes and device == "cpu":
            yield "device", f"backend {settings.backend} has {axis} above 1 on GPUs only"


def _of_requests(settings: Generate) -> Iterator[Reason]:
    shortest, longest = settings.shortest(settings.prompt_tokens), settings.longest_sequence_tokens
    if (prefix := settings.shared_prefix_tokens or 0) > shortest:
        yield "length", f"shared_prefix_tokens {prefix} is more than the shortest prompt has: {shortest}"
    if settings.context_tokens < longest:
        given = f"max_context_tokens {settings.max_context_tokens}"
        yield "length", f"{given} is less than the longest prompt and output: {longest}"
    if settings.concurrency is not None and settings.concurrency % settings.data_parallel:
        yield "uneven", f"concurrency {settings.concurrency} can't be split over data_parallel {settings.data_parallel}"
