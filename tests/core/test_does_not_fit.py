"""A point that runs out of memory is left out of the run, and is no error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core.counts import contradiction
from pybench.core.keys import run_figures
from pybench.model.manifest import PlanOptions
from pybench.model.record import GpuProcess, Health, Record
from pybench.model.results import Results
from pybench.model.suite import Benchmark, Effort, Limits, Plan
from tests.api import judged, suite_of
from tests.build import Build
from tests.builders import MANIFEST
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.does_not_fit")


def run_of(build: Build, *, large: list[Record] | None = None, small: bool = True, **benchmark: Any) -> Results:
    """A run of two points, of which the second one ran out of memory; the suite has a limit for both."""
    one, two = build.generate(1), build.generate(2)
    decode = Benchmark(
        name="decode",
        workload="generate",
        settings={},
        axes={"tensor_parallel": (1, 2)},
        effort=Effort(),
        expectations=(Limits(metric="step_s", maximum=10.0),),
        **{name: value for name, value in benchmark.items() if name != "options"},
    )
    manifest = replace(
        MANIFEST,
        suite=suite_of(decode),
        plan=Plan(points=(one, two), skips=()),
        options=benchmark.get("options", PlanOptions()),
    )
    records = [*(build.measured(one, [[1.0], [1.01], [1.02]]) if small else []), *(large or [build.failed(two)])]
    return judged(manifest, records)


def test_a_point_that_runs_out_of_memory_is_left_out(build: Build) -> None:
    """The run passes by its other rows, and names what is left out."""
    results = run_of(build)
    assert [point.status for point in results.points] == ["ok", "does_not_fit"]
    assert results.points[1].reason == SENTENCES["a_point_that_runs_out_of_memory_is"]
    assert (results.points[1].attempts, results.points[1].failed_attempts) == (1, 1)
    assert results.verdict == "pass"
    assert (results.counts.passed, results.counts.missing) == (1, 0)
    assert results.left_out == (SENTENCES["a_point_that_runs_out_of_memory_is_2"],)
    assert contradiction(results) is None


@pytest.mark.parametrize(
    "required", [{"required": True}, {"options": PlanOptions(require="gpus=2")}], ids=["benchmark", "command"]
)
def test_a_required_point_that_runs_out_of_memory_is_missing(build: Build, required: dict[str, Any]) -> None:
    """By the suite or by the command line."""
    results = run_of(build, **required)
    assert [point.status for point in results.points] == ["ok", "does_not_fit"]
    assert results.verdict == "missing"


def test_a_run_without_a_point_that_fits_does_not_pass(build: Build) -> None:
    """Nothing was measured."""
    results = run_of(build, small=False, large=[build.failed(build.generate(1)), build.failed(build.generate(2))])
    assert {point.status for point in results.points} == {"does_not_fit"}
    assert (results.verdict, results.reason.partition(":")[0]) == ("missing", "nothing was measured")


def test_memory_that_another_process_had_is_an_error(build: Build) -> None:
    """The point may fit an idle GPU."""
    failed = build.failed(build.generate(2))
    other = GpuProcess(uuid="GPU-0", pid=7, name="train", memory_bytes=None, first_ns=0, last_ns=1)
    results = run_of(
        build, large=[replace(failed, health=Health(before=(), after=(), links=(), xids=None, others=(other,)))]
    )
    assert results.points[1].status == "failed"
    assert results.verdict == "error"


@pytest.mark.parametrize("causes", [("exception",), ("exception", "out_of_memory")])
def test_another_failure_is_an_error(build: Build, causes: tuple[Any, ...]) -> None:
    """Also where memory ran out in another attempt."""
    two = build.generate(2)
    results = run_of(build, large=[build.failed(two, number, cause) for number, cause in enumerate(causes, start=1)])
    assert results.points[1].status == "failed"
    assert results.verdict == "error"


def test_a_night_misses_a_point_that_no_longer_fits(build: Build) -> None:
    """A gate must see what an earlier night had measured."""
    fits, unfit = run_figures(run_of(build)).points
    assert (fits.is_missing, unfit.is_missing) == (False, True)
