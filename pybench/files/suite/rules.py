"""Rules of a suite file: its names and profiles, and every benchmark under each profile."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from pybench.files.suite.profiles import Fields, WrittenBenchmark, WrittenSuite, fields_of_workload
from pybench.files.toml_file import KeyPath, KeyProblem, did_you_mean
from pybench.model.container import ContainerRequest
from pybench.model.suite import Benchmark, Comparison, Limits, Scaling
from pybench.model.tuning import credentials_in, is_secret, variables_of
from pybench.model.workloads.registry import METRICS_OF, SETTINGS_OF, SHARED_BATCH, TRAITS_OF, count_axes
from pybench.model.workloads.settings import ALL_GPUS, ENVIRONMENT, NODES, REST


def suite_problems(suite: WrittenSuite, profiles: Collection[str | None]) -> list[KeyProblem]:
    """Every rule that the file breaks under ``profiles``, each problem with the first of them."""
    found = [*_names(suite), *_profiles(suite), *_container(suite.container)]
    seen = {path for path, _ in found}
    for profile in profiles:
        under = f" under profile {profile}" if profile else ""
        new = [(path, message + under) for path, message in _benchmarks(suite, profile) if path not in seen]
        found += new
        seen |= {path for path, _ in new}
    return found


def _benchmarks(suite: WrittenSuite, profile: str | None) -> Iterator[KeyProblem]:
    benchmarks = suite.under(profile)
    num_points = 0
    for index, benchmark in enumerate(benchmarks):
        num_points += _num_points(benchmark)
        if num_points > MAX_POINTS >= _num_points(benchmark):
            yield ("benchmark", index), f"{num_points} points with those before it, a suite has at most {MAX_POINTS}"
            return
        for path, message in benchmark_problems(benchmark):
            yield ("benchmark", index, *path), message
        own = {name for text in benchmark.given.values(ENVIRONMENT) for name in variables_of(str(text))}
        for variable in sorted(own & {*suite.container.environment, *suite.container.secrets}):
            message = f"{variable} is set for all benchmarks in [container]; remove it there or here"
            yield ("benchmark", index, ENVIRONMENT), message
    yield from comparison_problems(benchmarks)


def _names(suite: WrittenSuite) -> Iterator[KeyProblem]:
    seen: set[str] = set()
    for index, benchmark in enumerate(suite.benchmarks):
        # Names become folder names, and some file systems know no letter case.
        if benchmark.name.casefold() in seen:
            yield ("benchmark", index, "name"), f"{benchmark.name!r} is the name of an earlier benchmark"
        seen.add(benchmark.name.casefold())


def _profiles(suite: WrittenSuite) -> Iterator[KeyProblem]:
    names = [benchmark.name for benchmark in suite.benchmarks]
    for profile_name, profile in suite.profiles.items():
        path: KeyPath = ("profile", profile_name)
        yield from _unknown_fields(path, profile.everywhere, suite.benchmarks)
        if all(benchmark.is_omitted(profile) for benchmark in suite.benchmarks):
            yield (*path, "benchmark"), "omits every benchmark; leave one, or remove the profile"
        for name, fields in profile.benchmarks.items():
            own = [benchmark for benchmark in suite.benchmarks if benchmark.name == name]
            if own:
                yield from _unknown_fields((*path, "benchmark", name), fields, own)
            else:
                message = f"no such benchmark{did_you_mean(name, names)}; valid are {', '.join(names)}"
                yield (*path, "benchmark", name), message


def _unknown_fields(path: KeyPath, fields: Fields, benchmarks: Collection[WrittenBenchmark]) -> Iterator[KeyProblem]:
    valid = {name for benchmark in benchmarks for name in fields_of_workload(benchmark.workload)}
    axes = {name for benchmark in benchmarks for name in benchmark.fields.axes}
    for key in (key for key in fields.values if key not in valid):
        yield (*path, key), f"no benchmark here has this field; valid are {', '.join(sorted(valid))}"
    if fields.job and not any(benchmark.fields.job for benchmark in benchmarks):
        # For one benchmark of training a profile may bring the whole job.
        able = path[2:3] == ("benchmark",) and benchmarks and all(each.workload == "train" for each in benchmarks)
        if not (able and "samples" in fields.job):
            yield (*path, "job"), "no benchmark here has a job; give it one: [benchmark.job] with samples"
    for key in (key for key in fields.axes if key not in axes):
        yield (*path, "axes", key), f"no benchmark here has this axis; valid are {', '.join(sorted(axes)) or 'none'}"


# The kernel's own file systems and sockets of daemons: read-only mounts of those still hand over the host.
_FORBIDDEN_SOURCES = ("/proc", "/sys", "/dev", "/run", "/var/run")
_FORBIDDEN_TARGETS = ("/pybench", "/proc", "/sys", "/dev", "/run", "/tmp")  # noqa: S108 - inside the container
# What pybench sets to choose GPUs, and what makes another Python or library of the one in the image.
_RESERVED = frozenset(
    {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HOME", "USER", "RANK", "WORLD_SIZE"}
)


def _container(request: ContainerRequest) -> Iterator[KeyProblem]:
    """Rules about places and names that are each well formed."""
    targets: set[str] = set()
    for index, mount in enumerate(request.mounts):
        source, target = ("container", "mounts", index, "source"), ("container", "mounts", index, "target")
        if inside := forbidden_source(mount.source):
            yield source, f"{mount.source} can't be mounted: {inside} belongs to the host alone"
        if inside := _inside(mount.target, _FORBIDDEN_TARGETS):
            yield target, f"{mount.target} is taken: pybench or the engine mounts {inside} itself"
        if mount.target in targets:
            yield target, f"{mount.target} is the target of an earlier mount"
        targets.add(mount.target)
    for name, value in request.environment.items():
        if is_secret(name, value) or credentials_in(value):
            yield ("container", "environment"), f"{name} holds a credential: name it in secrets instead"
    for key, names in (("environment", request.environment), ("secrets", request.secrets)):
        yield from ((("container", key), f"{name} is set by pybench; remove it") for name in names if name in _RESERVED)


def forbidden_source(path: str) -> str | None:
    """The folder of the host alone that ``path`` lies in; ``None`` where it may be mounted."""
    return _inside(path, _FORBIDDEN_SOURCES)


def _inside(path: str, folders: tuple[str, ...]) -> str | None:
    return next((folder for folder in folders if path == folder or path.startswith(f"{folder}/")), None)


MAX_POINTS = 4096


def benchmark_problems(benchmark: Benchmark) -> Iterator[KeyProblem]:
    """Every rule that the benchmark breaks without a look at others, by keys of its table."""
    for name in benchmark.axes:
        if name in benchmark.settings:
            yield ("axes", name), "both fixed and an axis; keep one of the two"
    for field in dataclasses.fields(SETTINGS_OF[benchmark.workload]):
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and not benchmark.given.values(field.name):
            yield (field.name,), "missing, and it is required, as a value or an axis"
    yield from _effort(benchmark)
    yield from _all_gpus(benchmark)
    if benchmark.round_up_batch and not isinstance(benchmark.settings.get(SHARED_BATCH[benchmark.workload]), int):
        yield ("round_up_batch",), f"there is no batch to round up: give {SHARED_BATCH[benchmark.workload]} one number"
    for breach in TRAITS_OF[benchmark.workload].rules(benchmark.given):
        key = () if breach.key is None else (breach.key,)
        yield ("axes", *key) if breach.key in benchmark.axes else key, breach.message
    for index, expectation in enumerate(benchmark.expectations):
        if isinstance(expectation, Limits):
            problems = _limits(expectation)
        else:
            problems = _scaling(expectation, benchmark) if isinstance(expectation, Scaling) else iter(())
        yield from (((*("expect", index), *path), message) for path, message in problems)


def _num_points(benchmark: Benchmark) -> int:
    return math.prod(len(values) for values in benchmark.axes.values())


def _effort(benchmark: Benchmark) -> Iterator[KeyProblem]:
    if (num_points := _num_points(benchmark)) > MAX_POINTS:
        yield ("axes",), f"expands to {num_points} points, at most {MAX_POINTS} are allowed"
    effort = benchmark.effort
    if effort.max_attempts < effort.attempts:
        yield ("max_attempts",), f"{effort.max_attempts} is below attempts = {effort.attempts}"


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


def _limits(expectation: Limits) -> Iterator[KeyProblem]:
    least, most = expectation.minimum, expectation.maximum
    if least is not None and most is not None and least > most:
        yield ("minimum",), f"{least:g} is above maximum = {most:g}"


def _scaling(expectation: Scaling, benchmark: Benchmark) -> Iterator[KeyProblem]:
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


def comparison_problems(benchmarks: Sequence[Benchmark]) -> Iterator[KeyProblem]:
    """The other benchmark must be there, be another, and have the metric and the axis that the distance grows along."""
    others = {benchmark.name: benchmark for benchmark in benchmarks}
    for index, benchmark in enumerate(benchmarks):
        for number, expectation in enumerate(benchmark.expectations):
            if isinstance(expectation, Comparison):
                path = ("benchmark", index, "expect", number)
                problems = _comparison(expectation, benchmark, others)
                yield from (((*path, key), message) for key, message in problems)


def _comparison(
    expectation: Comparison, benchmark: Benchmark, others: Mapping[str, Benchmark]
) -> Iterator[tuple[str, str]]:
    found, along, order = expectation.other, expectation.widening_along, expectation.order
    values = None if along is None else benchmark.axes.get(along)
    if along is not None and values is None:
        yield "widening_along", f"{along} is no axis of this benchmark; add it to its axes"
    elif values and (along in count_axes(benchmark.workload) or any(isinstance(v, str | bool) for v in values)):
        yield "widening_along", f"{along} is no load: it must be an axis of numbers that multiplies no GPUs"
    if found not in others or found == benchmark.name:
        names = [name for name in others if name != benchmark.name]
        valid = ", ".join(names) or "none, the suite has no other"
        yield order, f"found {found!r}, no other benchmark{did_you_mean(found, names)}; valid: {valid}"
    elif along is not None and along not in others[found].axes:
        yield order, f"{found!r} has no axis {along}, along which the distance must grow"
    elif expectation.metric not in METRICS_OF[others[found].workload]:
        yield order, f"{found!r} has no metric {expectation.metric}"
