"""Rules of a suite file: its names and profiles, and every benchmark under each profile."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping

from pybench.files.suite.profiles import Table, benchmark_of, fields_of_workload, is_omitted
from pybench.files.suite.schema import JOB_WORKLOAD
from pybench.files.toml_file import KeyPath, KeyProblem, did_you_mean
from pybench.model.suite import Benchmark, Comparison, Expectation, Scaling
from pybench.model.tuning import credentials_in, is_secret, variables_of
from pybench.model.workloads.registry import METRICS_OF, SETTINGS_OF, SHARED_BATCH, TRAITS_OF, count_axes
from pybench.model.workloads.settings import ALL_GPUS, ENVIRONMENT, NODES, REST


def suite_problems(document: Table, profiles: Collection[str | None]) -> list[KeyProblem]:
    """Every rule that the file breaks under ``profiles``, each problem with the first of them."""
    problems = [*_names(document), *_profiles(document), *_container(document.get("container", {}))]
    seen = {path for path, _ in problems}
    for profile in profiles:
        under = f" under profile {profile}" if profile else ""
        new = [(path, message + under) for path, message in _benchmarks(document, profile) if path not in seen]
        problems += new
        seen |= {path for path, _ in new}
    return problems


def _benchmarks(document: Table, profile: str | None) -> Iterator[KeyProblem]:
    over = document["profile"][profile] if profile else {}
    benchmarks = [benchmark_of(table, over) for table in document["benchmark"]]  # also one that the profile omits
    others = {benchmark.name: benchmark for benchmark in benchmarks}
    container = document.get("container", {})
    num_points = 0
    for index, benchmark in enumerate(benchmarks):
        own_points = math.prod(len(values) for values in benchmark.axes.values())
        num_points += own_points
        if own_points > MAX_POINTS:
            message = f"expands to {own_points} points, at most {MAX_POINTS} are allowed"
            yield ("benchmark", index, "axes"), message
        elif num_points > MAX_POINTS:
            yield ("benchmark", index), f"{num_points} points with those before it, a suite has at most {MAX_POINTS}"
            return
        for path, message in _benchmark(benchmark, others):
            yield ("benchmark", index, *path), message
        variables = {name for text in benchmark.given.values(ENVIRONMENT) for name in variables_of(str(text))}
        for variable in sorted(variables & {*container.get("environment", ()), *container.get("secrets", ())}):
            message = f"{variable} is set for all benchmarks in [container]; remove it there or here"
            yield ("benchmark", index, ENVIRONMENT), message


def _names(document: Table) -> Iterator[KeyProblem]:
    seen: set[str] = set()
    for index, table in enumerate(document["benchmark"]):
        # Names become folder names, and some file systems know no letter case.
        if table["name"].casefold() in seen:
            yield ("benchmark", index, "name"), f"{table['name']!r} is the name of an earlier benchmark"
        seen.add(table["name"].casefold())


def _profiles(document: Table) -> Iterator[KeyProblem]:
    tables = document["benchmark"]
    names = [table["name"] for table in tables]
    for profile_name, profile in document.get("profile", {}).items():
        path: KeyPath = ("profile", profile_name)
        yield from _unknown_fields(path, profile, tables)
        if all(is_omitted(table, profile) for table in tables):
            yield (*path, "benchmark"), "omits every benchmark; leave one, or remove the profile"
        for name, over in profile.get("benchmark", {}).items():
            if named := [table for table in tables if table["name"] == name]:
                yield from _unknown_fields((*path, "benchmark", name), over, named)
            else:
                message = f"no such benchmark{did_you_mean(name, names)}; valid are {', '.join(names)}"
                yield (*path, "benchmark", name), message


def _unknown_fields(path: KeyPath, over: Table, tables: Collection[Table]) -> Iterator[KeyProblem]:
    valid = {name for table in tables for name in fields_of_workload(table["workload"])}
    axes = {name for table in tables for name in table.get("axes", ())}
    for key in (key for key in over if key not in {*valid, "axes", "job", "omit", "benchmark"}):
        yield (*path, key), f"no benchmark here has this field; valid are {', '.join(sorted(valid))}"
    if "job" in over and not any("job" in table for table in tables):
        # For one benchmark of training a profile may bring the whole job.
        able = path[2:3] == ("benchmark",) and all(table["workload"] == JOB_WORKLOAD for table in tables)
        if not (able and "samples" in over["job"]):
            yield (*path, "job"), "no benchmark here has a job; give it one: [benchmark.job] with samples"
    for key in (key for key in over.get("axes", ()) if key not in axes):
        yield (*path, "axes", key), f"no benchmark here has this axis; valid are {', '.join(sorted(axes)) or 'none'}"


# The kernel's own file systems and sockets of daemons: read-only mounts of those still hand over the host.
_FORBIDDEN_SOURCES = ("/proc", "/sys", "/dev", "/run", "/var/run")
_FORBIDDEN_TARGETS = ("/pybench", "/proc", "/sys", "/dev", "/run", "/tmp")  # noqa: S108 - inside the container
# What pybench sets to choose GPUs, and what makes another Python or library of the one in the image.
_RESERVED = frozenset(
    {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HOME", "USER", "RANK", "WORLD_SIZE"}
)


def _container(table: Table) -> Iterator[KeyProblem]:
    """Rules about places and names that are each well formed."""
    targets: set[str] = set()
    for index, mount in enumerate(table.get("mounts", ())):
        path, source, target = ("container", "mounts", index), mount["source"], mount["target"]
        if inside := forbidden_source(source):
            yield (*path, "source"), f"{source} can't be mounted: {inside} belongs to the host alone"
        if inside := _inside(target, _FORBIDDEN_TARGETS):
            yield (*path, "target"), f"{target} is taken: pybench or the engine mounts {inside} itself"
        if target in targets:
            yield (*path, "target"), f"{target} is the target of an earlier mount"
        targets.add(target)
    for name, value in table.get("environment", {}).items():
        if is_secret(name, value) or credentials_in(value):
            yield ("container", "environment"), f"{name} holds a credential: name it in secrets instead"
    for key in ("environment", "secrets"):
        for name in (name for name in table.get(key, ()) if name in _RESERVED):
            yield ("container", key), f"{name} is set by pybench; remove it"


def forbidden_source(path: str) -> str | None:
    """The folder of the host alone that ``path`` lies in; ``None`` where it may be mounted."""
    return _inside(path, _FORBIDDEN_SOURCES)


def _inside(path: str, folders: tuple[str, ...]) -> str | None:
    return next((folder for folder in folders if path == folder or path.startswith(f"{folder}/")), None)


MAX_POINTS = 4096


def _benchmark(benchmark: Benchmark, others: Mapping[str, Benchmark]) -> Iterator[KeyProblem]:
    """Every rule that the benchmark breaks, by keys of its table."""
    for name in benchmark.axes:
        if name in benchmark.settings:
            yield ("axes", name), "both fixed and an axis; keep one of the two"
    for field in dataclasses.fields(SETTINGS_OF[benchmark.workload]):
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and not benchmark.given.values(field.name):
            yield (field.name,), "missing, and it is required, as a value or an axis"
    effort = benchmark.effort
    if effort.max_attempts < effort.attempts:
        yield ("max_attempts",), f"{effort.max_attempts} is below attempts = {effort.attempts}"
    yield from _all_gpus(benchmark)
    if benchmark.round_up_batch and not isinstance(benchmark.settings.get(SHARED_BATCH[benchmark.workload]), int):
        yield ("round_up_batch",), f"there is no batch to round up: give {SHARED_BATCH[benchmark.workload]} one number"
    for breach in TRAITS_OF[benchmark.workload].rules(benchmark.given):
        key = () if breach.key is None else (breach.key,)
        yield ("axes", *key) if breach.key in benchmark.axes else key, breach.message
    for index, expectation in enumerate(benchmark.expectations):
        for path, message in (*_scaling(expectation, benchmark), *_comparison(expectation, benchmark, others)):
            yield ("expect", index, *path), message


def _all_gpus(benchmark: Benchmark) -> Iterator[KeyProblem]:
    """The other degrees leave one number only if each of them has one."""
    names = [name for name in count_axes(benchmark.workload) if name in benchmark.axes]
    degrees = {name: benchmark.axes[name] for name in names}
    rest = [name for name in count_axes(benchmark.workload) if benchmark.settings.get(name) == REST]
    for name in rest:
        if others := [other for other in rest if other != name] or [n for n, own in degrees.items() if ALL_GPUS in own]:
            yield (name,), f"{REST!r} is what the other degrees leave, and {others[0]} has no number; give it one"
    for name, values in degrees.items():
        several = [other for other, own in degrees.items() if other != name and (len(own) > 1 or ALL_GPUS in own)]
        if ALL_GPUS in values and several:
            yield ("axes", name), f"{ALL_GPUS!r} is what the other degrees leave: give {several[0]} one number"


def _scaling(expectation: Expectation, benchmark: Benchmark) -> Iterator[KeyProblem]:
    if not isinstance(expectation, Scaling):
        return
    counts = benchmark.axes.get(expectation.along)
    filled = [name for name in count_axes(benchmark.workload) if benchmark.settings.get(name) == REST]
    if counts is None:
        yield ("along",), f"{expectation.along} is no axis of this benchmark; add it to its axes"
    elif filled and expectation.along != NODES:
        yield ("along",), f"GPUs do not grow along it: {filled[0]} = {REST!r} fills them at every value"
    elif expectation.baseline not in {None, *counts}:
        yield ("baseline",), f"{expectation.baseline} is no value of axis {expectation.along}: {list(counts)}"
    rules = TRAITS_OF[benchmark.workload].scaling_rules
    for breach in rules(benchmark.given, expectation.scaling, expectation.along):
        yield (breach.key,) if breach.key else (), breach.message


def _comparison(
    expectation: Expectation, benchmark: Benchmark, others: Mapping[str, Benchmark]
) -> Iterator[KeyProblem]:
    """The other benchmark is there, is another, and has the metric and the axis that the distance grows along."""
    if not isinstance(expectation, Comparison):
        return
    other, along, order = expectation.other, expectation.widening_along, expectation.order
    values = None if along is None else benchmark.axes.get(along)
    if along is not None and values is None:
        yield ("widening_along",), f"{along} is no axis of this benchmark; add it to its axes"
    elif values and (along in count_axes(benchmark.workload) or any(isinstance(v, str | bool) for v in values)):
        yield ("widening_along",), f"{along} is no load: it must be an axis of numbers that multiplies no GPUs"
    if other not in others or other == benchmark.name:
        names = [name for name in others if name != benchmark.name]
        valid = ", ".join(names) or "none, the suite has no other"
        yield (order,), f"found {other!r}, no other benchmark{did_you_mean(other, names)}; valid: {valid}"
    elif along is not None and along not in others[other].axes:
        yield (order,), f"{other!r} has no axis {along}, along which the distance must grow"
    elif expectation.metric not in METRICS_OF[others[other].workload]:
        yield (order,), f"{other!r} has no metric {expectation.metric}"
