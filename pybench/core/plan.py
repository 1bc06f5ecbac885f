"""Points of a suite, values of its words on a machine, and points that can't run here, with the reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import lcm, prod
from typing import Any

from pybench.core.feasibility import infeasible, lacking
from pybench.core.memory import memory_reasons
from pybench.model.backend import BACKENDS
from pybench.model.decoder_shape import Architecture
from pybench.model.errors import UsageError
from pybench.model.machine import Devices
from pybench.model.suite import AxisValue, Benchmark, Plan, Point, Skip, Suite
from pybench.model.workloads.registry import SETTINGS_OF, SHARED_BATCH, AnySettings, count_axes
from pybench.model.workloads.settings import ALL_GPUS, GPU_AXES, INSTALLED, REST, ModelSettings
from pybench.model.workloads.traits import SkipKind


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
    required = NOTHING_REQUIRED
    for part in map(str.strip, text.split(",") if text else ()):
        key, _, value = part.partition("=")
        number = int(value) if value.isdecimal() else 0
        if key == "gpus" and number:
            required = replace(required, num_gpus=number)
        elif key == "nodes" and number:
            required = replace(required, num_nodes=number)
        elif key == "backend" and value in BACKENDS:
            required = replace(required, backends=required.backends | {value})
        elif part == "table":
            required = replace(required, table=True)
        else:
            valid = f"table, gpus=N, nodes=N or backend=NAME, with a name of {', '.join(BACKENDS)}"
            raise UsageError(f"--require: found {part!r}, valid: {valid}")
    return required


def expand(
    suite: Suite,
    architectures: Mapping[str, Architecture],
    there: Devices,
    *,
    max_gpus: int | None = None,
    keep: Callable[[str], bool] = lambda _: True,
    required: Required = NOTHING_REQUIRED,
    rates_run: str | None = None,
) -> Plan:
    """List the suite's points in the order they run: benchmarks as written, the last axis turning fastest.

    ``keep`` selects points by id; the others that selected points are compared with go to ``Plan.left_out``. Points
    that give rates stay where speedups are planned, and only there; not where the earlier run ``rates_run`` measured
    them. A point with more GPUs or nodes than ``max_gpus`` or the machine goes to ``Plan.left_out``, a required one to
    ``Plan.skips``. A point that can run nowhere is left out if a word of the file
    implied it, and skipped if the file names its values. The number for ``"rest"`` is an axis of the point.
    """
    written = {benchmark.name: benchmark for benchmark in suite.benchmarks}
    points, others, skips, left_out = list[Point](), list[Point](), list[Skip](), list[Skip]()
    for point in _points(suite, {**architectures, **suite.own_models}, (there.count, max_gpus)):
        benchmark = written[point.benchmark]
        if not (keep(point.id) or benchmark.gives_rates):
            others.append(point)
            continue
        # Who requires a backend requires it on the GPUs that are there.
        fits = point.settings.num_nodes <= there.num_hosts and point.settings.num_gpus_per_node <= there.count
        wanted = required if fits else replace(required, backends=frozenset())
        demanded = benchmark.required or is_required(point, wanted)
        if max_gpus is not None and point.num_gpus > max_gpus:
            limit = f"{point.num_gpus} GPUs (--max-gpus {max_gpus})"
            left_out.append(skipped(point, "max_gpus", f"left out by --max-gpus {max_gpus}", limit))
            continue
        lack = lacking(point, there)
        if lack is not None and not demanded:
            left_out.append(skipped(point, lack[0], f"left out: {lack[1]}", lack[1]))
        elif reasons := [*infeasible(point, there)] or [*memory_reasons(point, there)]:
            kind, reason = reasons[0][0], "; ".join(text for _, text in reasons)
            by_word = any(point.axes.get(name) in values for name, values in benchmark.implied.items())
            if (by_word or any(benchmark.settings.get(name) == REST for name in point.axes)) and not demanded:
                left_out.append(skipped(point, kind, f"left out: {reason}", f"{point.benchmark}: {reason}"))
            else:
                skips.append(skipped(point, kind, reason, lack and lack[1]))
        else:
            points.append(point)
    compared = {(name, each.other) for name, benchmark in written.items() for each in benchmark.comparisons}
    for other in others:
        if any((point.benchmark, other.benchmark) in compared and are_comparable(point, other) for point in points):
            reason = "left out by -k, so nothing is compared with it"
            left_out.append(skipped(other, "filter", reason, f"{other.benchmark} (-k)"))
    has_speedups = any(point.num_gpus > 1 and not written[point.benchmark].gives_rates for point in points)
    kept = {name for name, each in written.items() if (has_speedups and rates_run is None) or not each.gives_rates}
    return Plan(
        points=tuple(point for point in points if point.benchmark in kept),
        skips=tuple(skip for skip in skips if skip.benchmark in kept),
        left_out=tuple(skip for skip in left_out if skip.benchmark in kept),
        rates_run=rates_run,
    )


def _points(suite: Suite, architectures: Mapping[str, Architecture], usable: tuple[int, int | None]) -> Iterator[Point]:
    for benchmark in suite.benchmarks:
        for values in product(*benchmark.axes.values()):
            axes = dict(zip(benchmark.axes, values, strict=True))
            axes |= rest_gpus(benchmark, axes, *usable)
            settings: AnySettings = SETTINGS_OF[benchmark.workload](**{**benchmark.settings, **axes})
            yield Point(
                id=point_id(benchmark.name, axes),
                benchmark=benchmark.name,
                axes=axes,
                settings=settings,
                effort=benchmark.effort,
                architecture=architectures[settings.model] if isinstance(settings, ModelSettings) else None,
                job=benchmark.job,
            )


_WORD = re.compile(r"[\w=.\-\[\],]+")
_OF_FILTERS = (ast.BoolOp, ast.UnaryOp, ast.Not, ast.And, ast.Or, ast.Name, ast.Load)


def parse_filter(text: str) -> Callable[[str], bool]:
    """The test of point ids by ``-k``: words, ``and``, ``or``, ``not`` and parentheses.

    A word matches as a substring, in any letter case. Raises ``UsageError`` naming the column.
    """
    text = text.strip()
    # As Python reads it, each word in the place of a name of its length; "#" begins no comment here.
    named = _WORD.sub(
        lambda word: word[0] if word[0] in {"and", "or", "not"} else "w" * len(word[0]), text.replace("#", "?")
    )

    def holds(node: ast.AST, point_id: str) -> bool:
        if isinstance(node, ast.BoolOp):
            results = (holds(value, point_id) for value in node.values)
            return all(results) if isinstance(node.op, ast.And) else any(results)
        if isinstance(node, ast.UnaryOp):
            return not holds(node.operand, point_id)
        assert isinstance(node, ast.Name)
        return text[node.col_offset : node.end_col_offset].casefold() in point_id.casefold()

    try:
        tree = ast.parse(named, mode="eval").body
        others = (node for node in ast.walk(tree) if not isinstance(node, _OF_FILTERS))
        column = next((getattr(node, "col_offset", 0) for node in others), -1)
        if column < 0:
            holds(tree, "")  # raises for one that is nested too deeply
    except SyntaxError as error:
        column = (error.offset or len(text) + 1) - 1
    except (ValueError, RecursionError, MemoryError):
        column = 0
    if column >= 0:
        valid = "words of a point's id, and, or, not, parentheses; e.g. -k 'decode and not tensor_parallel=8'"
        raise UsageError(f"-k {text!r:.200}: no expression from column {column + 1} on; valid are {valid}")
    return lambda point_id: holds(tree, point_id)


def point_id(benchmark: str, axes: Mapping[str, AxisValue]) -> str:
    """Readable name of a point, e.g. ``decode[backend=torch,tensor_parallel=2]``; without axes, the benchmark's."""
    if not axes:
        return benchmark
    return f"{benchmark}[{','.join(f'{name}={value}' for name, value in axes.items())}]"


def is_required(point: Point, required: Required) -> bool:
    """Whether the command line insists on the point."""
    nodes = point.settings.num_nodes
    there = nodes <= required.num_nodes if nodes > 1 else point.num_gpus <= required.num_gpus
    return there or point.settings.backend in required.backends


def are_comparable(entry: Point | Skip, other: Point | Skip) -> bool:
    """Whether they have equal numbers of GPUs and equal values on their common axes, except axes that multiply GPUs."""
    common = {*entry.axes} & {*other.axes} - {*GPU_AXES}
    return entry.num_gpus == other.num_gpus and all(entry.axes[axis] == other.axes[axis] for axis in common)


def left_out_list(plan: Plan) -> tuple[str, ...]:
    """Reasons for points left out, each once, in the order of the plan."""
    return tuple(dict.fromkeys(skip.lacks for skip in plan.left_out if skip.lacks is not None))


def skipped(point: Point, kind: SkipKind | None, reason: str, lacks: str | None = None) -> Skip:
    """The point as one that is not measured."""
    name, axes, num_gpus = point.benchmark, point.axes, point.num_gpus
    return Skip(id=point.id, benchmark=name, axes=axes, num_gpus=num_gpus, reason=reason, lacks=lacks, kind=kind)


def without(plan: Plan, skips: Mapping[str, Skip], required: Required, benchmarks: Collection[str]) -> Plan:
    """``plan`` without the points that ``skips`` has by id: each is left out, one that is required is skipped.

    It is required by the command line, or because its benchmark is among ``benchmarks``.
    """
    must = {point.id for point in plan.points if point.benchmark in benchmarks or is_required(point, required)}
    return replace(
        plan,
        points=tuple(point for point in plan.points if point.id not in skips),
        skips=(*plan.skips, *(skip for name, skip in skips.items() if name in must)),
        left_out=(*plan.left_out, *(skip for name, skip in skips.items() if name not in must)),
    )


def with_effort(suite: Suite, *, attempts: int | None = None, steps: int | None = None) -> Suite:
    """Replace the number of attempts, and of steps in each; ``None`` keeps the suite's number."""
    numbers = {"attempts": attempts, "max_attempts": attempts, "steps": steps}
    changes: dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
    return replace(suite, benchmarks=tuple(replace(b, effort=replace(b.effort, **changes)) for b in suite.benchmarks))


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


def with_words(suite: Suite, *, num_devices: int, max_gpus: int | None = None) -> Suite:
    """Put values for the words, and record which they are: what can't run of them is left out.

    ``"all"`` is the number of devices that are there, of which ``max_gpus`` may be used. A benchmark's other degrees
    take their part: with ``data_parallel`` 2, all of 8 in ``tensor_parallel`` are 4. Numbers of the axis stay, also
    those above it, which the plan leaves out and names: ``[2, 4, "all"]`` is 2, 4 and 3 on three GPUs. Below the least
    number the word adds nothing. Over several ``nodes`` all are those of each. ``"installed"`` is every backend that
    has the workload; those whose packages are absent are left out once that is known. ``round_up_batch`` makes the
    batch of a step a multiple that every number of GPUs here divides: 8 samples are 9 on three GPUs.
    """
    count = num_devices if max_gpus is None else min(num_devices, max_gpus)
    return replace(suite, benchmarks=tuple(_with_values(benchmark, count) for benchmark in suite.benchmarks))


def _with_values(benchmark: Benchmark, count: int) -> Benchmark:
    nodes = benchmark.axes.get("nodes", (benchmark.settings.get("nodes", 1),))
    num_nodes = nodes[0] if len(nodes) == 1 and isinstance(nodes[0], int) else 1
    # Degrees with one value; an axis with the word is the unknown.
    degrees = (benchmark.axes.get(name, (benchmark.settings.get(name, 1),)) for name in count_axes(benchmark.workload))
    others = prod(values[0] for values in degrees if len(values) == 1 and isinstance(values[0], int))
    share = max(1, count * num_nodes // others)
    able = [name for name, traits in BACKENDS.items() if benchmark.workload in traits.parallel_axes]
    axes = {}
    for name, values in benchmark.axes.items():
        least = min((value for value in values if isinstance(value, int)), default=share)
        word, expanded = (INSTALLED, able) if name == "backend" else (ALL_GPUS, [share] if share >= least else [])
        kept = (value for value in values if value != word)
        axes[name] = tuple(dict.fromkeys((*kept, *expanded))) if word in values else values
    implied = {
        name: tuple(value for value in values if value not in benchmark.axes[name]) for name, values in axes.items()
    }
    filled = replace(benchmark, axes=axes, implied={name: values for name, values in implied.items() if values})
    return _with_batch(filled, count) if benchmark.round_up_batch else filled


def _with_batch(benchmark: Benchmark, count: int) -> Benchmark:
    """The counts of its axes that are here share one batch, each by whole passes."""
    name = SHARED_BATCH[benchmark.workload]
    shared_by = (*count_axes(benchmark.workload), "grad_accum", "batch_size_per_gpu")
    multiple = 1
    for setting in shared_by:
        is_count = setting in count_axes(benchmark.workload)
        numbers = (value for value in benchmark.given.values(setting) if isinstance(value, int))
        multiple *= lcm(*(value for value in numbers if not (is_count and value > count)))  # counts above the GPUs here
    written = benchmark.settings[name]
    batch = -(-written // multiple) * multiple
    implied = benchmark.implied if batch == written else {**benchmark.implied, name: (batch,)}
    return replace(benchmark, settings={**benchmark.settings, name: batch}, implied=implied)
