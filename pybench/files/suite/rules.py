"""Rules of a suite file: its names and profiles, and every benchmark under each profile."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pybench.files.suite.benchmark_rules import benchmark_problems
from pybench.files.suite.comparison_rules import comparison_problems
from pybench.files.suite.container import container_problems
from pybench.files.suite.profiles import Fields, WrittenBenchmark, WrittenSuite, fields_of_workload
from pybench.files.toml.lines import KeyPath, KeyProblem
from pybench.files.toml.problem_text import did_you_mean
from pybench.model.container import ContainerRequest
from pybench.model.tuning import variables_of
from pybench.model.workloads.settings import ENVIRONMENT


def suite_problems(suite: WrittenSuite, profiles: Collection[str | None]) -> list[KeyProblem]:
    """Every rule that the file breaks, its benchmarks being checked under each of ``profiles``.

    A problem that a benchmark has under several profiles is reported for the first of them.
    """
    found = [*_names(suite), *_profiles(suite), *container_problems(suite.container)]
    seen = {path for path, _ in found}
    for profile in profiles:
        under = f" under profile {profile}" if profile else ""
        new = [(path, message + under) for path, message in _benchmarks(suite, profile) if path not in seen]
        found += new
        seen |= {path for path, _ in new}
    return found


def _benchmarks(suite: WrittenSuite, profile: str | None) -> Iterator[KeyProblem]:
    benchmarks = suite.under(profile)
    for index, benchmark in enumerate(benchmarks):
        for path, message in benchmark_problems(benchmark):
            yield ("benchmark", index, *path), message
        for variable in _set_for_all(benchmark.given.values(ENVIRONMENT), suite.container):
            message = f"{variable} is set for all benchmarks in [container]; remove it there or here"
            yield ("benchmark", index, ENVIRONMENT), message
    yield from comparison_problems(benchmarks)


def _set_for_all(environments: Iterable[object], container: ContainerRequest) -> list[str]:
    """Variables of a benchmark that the container's would replace."""
    own = {name for text in environments for name in variables_of(str(text))}
    return sorted(own & {*container.environment, *container.secrets})


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
