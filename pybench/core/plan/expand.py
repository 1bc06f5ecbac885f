"""Expand a suite's axes to points, and find those that can't run here, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from pybench.core.feasibility.point import infeasible, lacking
from pybench.core.memory import memory_reason
from pybench.model.backend import BACKENDS
from pybench.model.decoder_shape import Architecture
from pybench.model.devices import Devices
from pybench.model.effort import Effort
from pybench.model.errors import UsageError
from pybench.model.suite import AxisValue, Benchmark, Plan, Point, Skip, Suite
from pybench.model.workloads.generate import SAME_PLACEMENTS
from pybench.model.workloads.registry import SETTINGS_OF, AnySettings, count_axes
from pybench.model.workloads.settings import REST, ModelSettings


@dataclass(frozen=True)
class Required:
    """Points that are missing, instead of left out, where the hosts can't run them.

    Points of one host with up to ``num_gpus`` GPUs, points of several hosts up to ``num_nodes``, and of ``backends``.
    ``table``: rows of tables alone judge, no prediction does.
    """

    num_gpus: int = 0
    backends: frozenset[str] = frozenset()
    num_nodes: int = 1
    table: bool = False


NOTHING_REQUIRED = Required()


def parse_required(text: str | None) -> Required:
    """Read ``gpus=N``, ``nodes=N``, ``backend=NAME`` and ``table``, separated by commas. Raises ``UsageError``."""
    num_gpus, num_nodes, backends, table = 0, 1, set(), False
    for part in (text or "").split(",") if text else ():
        key, _, value = part.strip().partition("=")
        if key == "gpus" and value.isdecimal() and int(value) > 0:
            num_gpus = int(value)
        elif key == "nodes" and value.isdecimal() and int(value) > 0:
            num_nodes = int(value)
        elif key == "backend" and value in BACKENDS:
            backends.add(value)
        elif part.strip() == "table":
            table = True
        else:
            valid = f"table, gpus=N, nodes=N or backend=NAME, with a name of {', '.join(BACKENDS)}"
            raise UsageError(f"--require: found {part.strip()!r}, valid: {valid}")
    return Required(num_gpus, frozenset(backends), num_nodes, table)


def expand(
    suite: Suite,
    architectures: Mapping[str, Architecture],
    there: Devices,
    *,
    max_gpus: int | None = None,
    keep: Callable[[str], bool] = lambda _: True,
    required: Required = NOTHING_REQUIRED,
) -> Plan:
    """List the suite's points in the order they run: benchmarks as written, the last axis turning fastest.

    ``keep`` selects points by id. A point with more GPUs or nodes than ``max_gpus`` or the machine goes to
    ``Plan.left_out``, a required one to ``Plan.skips``. A point that can run nowhere is
    left out if a word of the file implied it, and skipped if the file names its values. The number for ``"rest"`` is an
    axis of the point.
    """
    must = {benchmark.name for benchmark in suite.benchmarks if benchmark.required}
    written = {benchmark.name: benchmark for benchmark in suite.benchmarks}
    points: list[Point] = []
    skips: list[Skip] = []
    left_out: list[Skip] = []
    placed: dict[tuple[object, ...], str] = {}
    for point in _points(suite, {**architectures, **suite.own_models}, (there.count, max_gpus)):
        if not keep(point.id):
            continue
        if (other := placed.setdefault(_placement(point), point.id)) != point.id:
            same = f"{point.axes['device_map']} places layers as {other} does"
            left_out.append(skipped(point, f"left out: device_map {same}", f"device_map {same}"))
            continue
        lacks = lacking(point, there)
        # Who requires a backend requires it on the GPUs that are there.
        fits = point.settings.num_nodes <= there.num_hosts and point.settings.num_gpus_per_node <= there.count
        wanted = required if fits else replace(required, backends=frozenset())
        demanded = point.benchmark in must or is_required(point, wanted)
        if max_gpus is not None and point.num_gpus > max_gpus:
            limit = f"{point.num_gpus} GPUs (--max-gpus {max_gpus})"
            left_out.append(skipped(point, f"left out by --max-gpus {max_gpus}", limit))
        elif lacks is not None and not demanded:
            left_out.append(skipped(point, f"left out: {lacks}", lacks))
        elif reason := infeasible(point, there) or memory_reason(point, there):
            if _is_implied(point, written[point.benchmark]) and not demanded:
                left_out.append(skipped(point, f"left out: {reason}", f"{point.benchmark}: {reason}"))
            else:
                skips.append(skipped(point, reason, lacks))
        else:
            points.append(point)
    return Plan(points=tuple(points), skips=tuple(skips), left_out=tuple(left_out))


def _points(suite: Suite, architectures: Mapping[str, Architecture], usable: tuple[int, int | None]) -> Iterator[Point]:
    for benchmark in suite.benchmarks:
        for values in product(*benchmark.axes.values()):
            axes = dict(zip(benchmark.axes, values, strict=True))
            yield _point(benchmark, {**axes, **rest_gpus(benchmark, axes, *usable)}, architectures)


def _point(benchmark: Benchmark, axes: dict[str, AxisValue], architectures: Mapping[str, Architecture]) -> Point:
    settings = _settings(benchmark, axes)
    return Point(
        id=point_id(benchmark.name, axes),
        benchmark=benchmark.name,
        axes=axes,
        settings=settings,
        effort=benchmark.effort,
        architecture=architectures[settings.model] if isinstance(settings, ModelSettings) else None,
        job=benchmark.job,
    )


def _settings(benchmark: Benchmark, axes: Mapping[str, AxisValue]) -> AnySettings:
    return SETTINGS_OF[benchmark.workload](**{**benchmark.settings, **axes})


def point_id(benchmark: str, axes: Mapping[str, AxisValue]) -> str:
    """Readable name of a point, e.g. ``decode[backend=torch,tensor_parallel=2]``; without axes, the benchmark's."""
    if not axes:
        return benchmark
    return f"{benchmark}[{','.join(f'{name}={value}' for name, value in axes.items())}]"


def _placement(point: Point) -> tuple[object, ...]:
    """Equal for points of a benchmark that differ in the name of one placement of layers alone."""
    named = {name: SAME_PLACEMENTS.get(str(value), value) for name, value in point.axes.items() if name == "device_map"}
    return (point.benchmark, *{**point.axes, **named}.items())


def is_required(point: Point, required: Required) -> bool:
    """Whether the command line insists on the point."""
    if point.settings.num_nodes > 1:
        there = point.settings.num_nodes <= required.num_nodes
    else:
        there = point.num_gpus <= required.num_gpus
    return there or point.settings.backend in required.backends


def _is_implied(point: Point, written: Benchmark) -> bool:
    words = any(point.axes.get(name) in values for name, values in written.implied.items())
    return words or any(written.settings.get(name) == REST for name in point.axes)


def left_out_list(plan: Plan) -> tuple[str, ...]:
    """Reasons for points left out, each once, in the order of the plan."""
    return tuple(dict.fromkeys(skip.lacks for skip in plan.left_out if skip.lacks is not None))


def skipped(point: Point, reason: str, lacks: str | None = None) -> Skip:
    """The point as one that is not measured."""
    return Skip(
        id=point.id,
        benchmark=point.benchmark,
        axes=point.axes,
        num_gpus=point.num_gpus,
        reason=reason,
        lacks=lacks,
    )


def with_effort(suite: Suite, *, attempts: int | None = None, steps: int | None = None) -> Suite:
    """Replace the number of attempts, and of steps in each; ``None`` keeps the suite's number."""

    def changed(effort: Effort) -> Effort:
        if attempts is not None:
            effort = replace(effort, attempts=attempts, max_attempts=attempts)
        return effort if steps is None else replace(effort, steps=steps)

    return replace(suite, benchmarks=tuple(replace(b, effort=changed(b.effort)) for b in suite.benchmarks))


def rest_gpus(
    benchmark: Benchmark, axes: Mapping[str, AxisValue], num_devices: int, max_gpus: int | None
) -> dict[str, int]:
    """The number that the word stands for in the point of these ``axes``, by its setting; empty without the word.

    ``num_devices`` are there on each host, of all of which ``max_gpus`` may be used. The number is rounded down, and at
    least 1; a point whose other degrees exceed the machine has too few GPUs.
    """
    values = {**benchmark.settings, **axes}
    counts = {name: values.get(name, 1) for name in count_axes(benchmark.workload)}
    others = prod(value for value in counts.values() if isinstance(value, int))
    there = num_devices * int(values.get("nodes", 1))
    usable = there if max_gpus is None else min(there, max_gpus)
    return {name: max(1, usable // others) for name, value in counts.items() if value == REST}
