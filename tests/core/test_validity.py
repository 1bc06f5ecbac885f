"""Points that may not serve as a baseline, or whose rows may not pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pybench.core.absolute import absolute_checks
from pybench.core.comparisons import comparison_results
from pybench.core.measurements import Measurements, metric_samples
from pybench.core.scaling import scaling_results
from pybench.core.summary import summarize
from pybench.core.validity import company, starvation
from pybench.model.record import GpuProcess, Health, Record
from pybench.model.results import ScalingResult
from pybench.model.suite import (
    Benchmark,
    Comparison,
    Effort,
    ExpectedTable,
    Limits,
    Plan,
    Point,
    RatioRow,
    Scaling,
    Suite,
)
from pybench.model.wire import Step, Work
from tests.api import suite_of
from tests.build import Build
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.validity")


def _record(
    build: Build, point: Any, values: dict[str, float], cache_tokens: float = 1e6, length_s: float = 1.0
) -> Any:
    step = Step(
        index=0,
        phase="measure",
        start_ns=0,
        end_ns=int(length_s * 1e9),
        work=Work(prompt_tokens=120, output_tokens=40, samples=4),
        values=values,
    )
    return build.record(point, (build.rank((step,), told={"kv_cache_tokens": cache_tokens}),))


@pytest.mark.parametrize(
    ("values", "cache_tokens", "words"),
    [
        ({"num_preemptions": 3.0}, 1e6, "3 preemptions in a step"),
        ({"num_preemptions": 0.0, "num_running": 3.0, "num_runnable": 4.0}, 150, "3 of 4 sequences ran at a time"),
        ({"num_running": 3.0, "num_runnable": 4.0}, 160, None),
        ({"num_running": 4.0, "num_runnable": 4.0}, 150, None),
        ({}, 150, None),
    ],
)
def test_a_cache_that_was_too_small(build: Build, values: dict[str, float], cache_tokens: float, words: str) -> None:
    """4 sequences of 40 tokens need room for 160; running fewer with that room is the scheduler's own affair."""
    point = build.generate()
    found = starvation(point, metric_samples(point, [_record(build, point, values, cache_tokens)]))
    assert found is None if words is None else found is not None and words in found


def test_training_has_no_such_cache(build: Build) -> None:
    """Whatever it reports."""
    assert starvation(build.train(), {"num_preemptions": [[1.0]]}) is None


def test_a_starved_point_is_flagged_and_refused_as_a_baseline(build: Build) -> None:
    """Its speedup would be within the table's limits, and says nothing."""
    one, two = build.generate(1), build.generate(2)
    hungry = [_record(build, one, {"num_preemptions": 1.0}) for _ in range(2)]
    sated = [_record(build, two, {"num_preemptions": 0.0}, length_s=0.5) for _ in range(2)]
    plan = Plan(points=(one, two), skips=())
    expectation = Scaling(metric="output_tokens_per_s", scaling="strong", along="tensor_parallel", table="t")
    benchmark = Benchmark(
        name="decode",
        workload="generate",
        settings={"backend": "torch", "model": "m"},
        axes={"tensor_parallel": (1, 2)},
        effort=Effort(),
        expectations=(expectation,),
    )
    keys: dict[str, Any] = {"machine": "any", "workload": "generate", "metric": "output_tokens_per_s", "source": "s"}
    row = RatioRow(**keys, count=2, kind="measured", value=2.0)
    table = ExpectedTable(name="t", description="", rows=(row,))
    suite = suite_of(benchmark)
    (found,) = scaling_results(suite, Measurements.of(plan, [*hungry, *sated]), {"t": table}, build.machine())
    assert (found.verdict, found.flags, found.speedup) == ("inconclusive", ("starved_baseline",), 2.0)
    assert found.reason == SENTENCES["a_starved_point_is_flagged_and"]
    starved, fed = summarize(Measurements.of(plan, [*hungry, *sated]))
    assert ("kv_starved" in starved.flags, "kv_starved" in fed.flags) == (True, False)


SECOND = 10**9


def _beside(record: Any, first_s: float, last_s: float) -> Any:
    process = GpuProcess(
        uuid="GPU-0",
        pid=4711,
        name="python3",
        memory_bytes=3 * 2**30,
        first_ns=int(first_s * SECOND),
        last_ns=int(last_s * SECOND),
    )
    return replace(record, health=Health(before=(), after=(), links=(), xids=None, others=(process,)))


@pytest.mark.parametrize(("first_s", "last_s", "met"), [(-5, -1, False), (-5, 1, True), (1, 9, True), (4, 9, False)])
def test_a_process_counts_while_steps_are_measured(build: Build, first_s: float, last_s: float, met: bool) -> None:
    """Steps last from 0 to 3 s."""
    (record,) = build.measured(build.generate(), [[1.0, 2.0]])
    words = company([record, _beside(record, first_s, last_s)], {})
    assert words == (
        "process 4711 (python3, 3 GiB) was on a GPU in a measured step: end it and measure again" if met else None
    )


def _judged(
    build: Build, points: dict[str, Point], records: list[Record], minimum: float, flag: str
) -> tuple[ScalingResult, list[str]]:
    """The speedup of two GPUs, of which a table wants ``minimum``, and the points that have ``flag``."""
    measurements = Measurements.of(Plan(points=tuple(points.values()), skips=()), records)
    scaling = Scaling(metric="output_tokens_per_s", scaling="strong", along="tensor_parallel", table="t")
    suite = Suite(
        name="s",
        description="",
        benchmarks=(
            Benchmark(
                name="decode",
                workload="generate",
                settings={"backend": "torch", "model": "m"},
                axes={"tensor_parallel": (1, 2)},
                effort=Effort(),
                expectations=(scaling,),
            ),
        ),
    )
    row = RatioRow(
        machine="any", workload="generate", metric=scaling.metric, count=2, source="s", kind="measured", minimum=minimum
    )
    table = ExpectedTable(name="t", description="", rows=(row,))
    (result,) = scaling_results(suite, measurements, {"t": table}, build.machine())
    return result, [name for name, found in zip(points, summarize(measurements), strict=True) if flag in found.flags]


@pytest.mark.parametrize("beside", ["point", "baseline", None])
@pytest.mark.parametrize(("minimum", "verdict"), [(1.5, "pass"), (2.5, "fail")])
def test_no_row_passes_in_company(build: Build, beside: str | None, minimum: float, verdict: str) -> None:
    """A pass becomes inconclusive, and names the process; a fail stays; alone it is as it was."""
    points = {"baseline": build.generate(1), "point": build.generate(2)}
    records = [
        _beside(record, 0, 1) if name == beside and record.attempt == 2 else record
        for name, length_s in (("baseline", 2.0), ("point", 1.0))
        for record in build.measured(points[name], [[length_s] * 3] * 3)
    ]
    result, flagged = _judged(build, points, records, minimum, "not_alone")
    assert result.verdict == ("inconclusive" if beside and verdict == "pass" else verdict)
    assert ("not_alone" in result.flags) is (beside is not None)
    assert ("process 4711" in result.reason) is (beside is not None and verdict == "pass")
    assert flagged == ([beside] if beside else [])


@pytest.mark.parametrize("mixed", ["point", "baseline", None])
@pytest.mark.parametrize(("minimum", "verdict"), [(1.5, "pass"), (2.5, "fail")])
def test_no_row_passes_over_attempts_of_different_software(
    build: Build, mixed: str | None, minimum: float, verdict: str
) -> None:
    """As after a ``pip install`` during the run: a pass becomes inconclusive and names both versions."""
    points = {"baseline": build.generate(1), "point": build.generate(2)}
    records = []
    for name, length_s in (("baseline", 2.0), ("point", 1.0)):
        for record in build.measured(points[name], [[length_s] * 3] * 3):
            version = "9.9.9" if name == mixed and record.attempt == 2 else "2.0.0"
            ranks = tuple(replace(r, header=replace(r.header, packages={"torch": version})) for r in record.ranks)
            records.append(replace(record, ranks=ranks))
    result, flagged = _judged(build, points, records, minimum, "mixed_software")
    assert result.verdict == ("inconclusive" if mixed and verdict == "pass" else verdict)
    assert ("mixed_software" in result.flags) is (mixed is not None)
    assert ("attempts ran with torch 2.0.0 and 9.9.9" in result.reason) is (mixed is not None and verdict == "pass")
    assert flagged == ([mixed] if mixed else [])


@pytest.mark.parametrize("beyond", ["point", "baseline", None])
@pytest.mark.parametrize(("minimum", "verdict"), [(1.5, "pass"), (2.5, "fail")])
def test_no_row_passes_that_is_faster_than_its_gpus(
    build: Build, beyond: str | None, minimum: float, verdict: str
) -> None:
    """Twice as fast by two GPUs; 4 sequences of an 8B model in 2 ms need 1.12 times the operations of an H200."""
    points = {"baseline": build.generate(1), "point": build.generate(2)}
    records: list[Record] = []
    for name, length_s in (("baseline", 2.0), ("point", 1.0)):
        # The point beyond the peak is a thousand times as fast, and so is its comparison on another GPU.
        seconds = length_s / 1000 if beyond else length_s
        device = "NVIDIA H200" if name == beyond else "a GPU of tomorrow"
        records += [_fast(build, points[name], device, attempt, seconds) for attempt in (1, 2, 3)]
    result, flagged = _judged(build, points, records, minimum, "beyond_peak")
    assert result.verdict == ("inconclusive" if beyond and verdict == "pass" else verdict)
    assert ("beyond_peak" in result.flags) is (beyond is not None)
    assert ("which no work reaches" in result.reason) is (beyond is not None and verdict == "pass")
    assert flagged == ([beyond] if beyond else [])


def _fast(build: Build, point: Point, device: str, attempt: int, length_s: float) -> Record:
    """4 sequences of an 8B model in less than 2 ms need more than the operations of an H200."""
    work = Work(prompt_tokens=120, output_tokens=40, samples=4)
    rank = build.rank(build.steps([length_s] * 3, work, rounds=10), device_name=device)
    return build.record(point, (rank,), attempt=attempt)


@pytest.mark.parametrize("flag", ["not_alone", "beyond_peak", None])
@pytest.mark.parametrize("place", ["tensor", "pipeline"])
@pytest.mark.parametrize(("factor", "verdict"), [(0.75, "pass"), (0.25, "fail")])
def test_no_comparison_passes_over_such_a_point(
    build: Build, flag: str | None, place: str, factor: float, verdict: str
) -> None:
    """Half the time of the other: one below is a pass, a quarter a fail."""
    points = {name: replace(build.generate(1), id=name, benchmark=name, axes={}) for name in ("tensor", "pipeline")}
    records = []
    for name, length_s in (("tensor", 0.001), ("pipeline", 0.002)):
        for attempt in (1, 2, 3):
            beyond = flag == "beyond_peak" and name == place
            device = "NVIDIA H200" if beyond else "a GPU of tomorrow"
            seconds = length_s / 2 if flag == "beyond_peak" else length_s
            record = _fast(build, points[name], device, attempt, seconds)
            records.append(_beside(record, 0, 1) if flag == "not_alone" and name == place else record)
    values: dict[str, Any] = {"workload": "generate", "settings": {}, "axes": {}, "effort": Effort()}
    below = Comparison(metric="step_s", order="below", other="pipeline", factor=factor)
    benchmarks = (Benchmark(name="tensor", **values, expectations=(below,)), Benchmark(name="pipeline", **values))
    measurements = Measurements.of(Plan(points=tuple(points.values()), skips=()), records)
    (row,) = comparison_results(Suite(name="s", description="", benchmarks=benchmarks), measurements)
    assert row.verdict == ("inconclusive" if flag and verdict == "pass" else verdict), row.reason
    assert row.flags == ((flag,) if flag else ())
    assert (row.decision is None) is (flag is not None and verdict == "pass")


@pytest.mark.parametrize(
    ("values", "verdict", "words"),
    [
        ({"late_arrival_fraction": 0.0, "num_failed_requests": 0.0}, "pass", ""),
        ({"late_arrival_fraction": 0.005}, "pass", ""),
        ({"late_arrival_fraction": 0.0051}, "inconclusive", "of arrivals were sent late"),
        ({"num_failed_requests": 1.0}, "inconclusive", "the server failed 1 requests of a step"),
    ],
)
def test_no_limit_passes_of_late_or_failed_requests(
    build: Build, values: dict[str, float], verdict: str, words: str
) -> None:
    """More than 0.5 % of a step's 4 requests: 40 tokens in a second are above the limit."""
    point = build.generate(1)
    records = [replace(_record(build, point, values), attempt=attempt) for attempt in (1, 2, 3)]
    limits = Limits(metric="output_tokens_per_s", minimum=1.0, maximum=None)
    benchmark = Benchmark(
        name="decode", workload="generate", settings={}, axes={}, effort=Effort(), expectations=(limits,)
    )
    measurements = Measurements.of(Plan(points=(point,), skips=()), records)
    summary = summarize(measurements)
    suite = suite_of(benchmark)
    (row,) = absolute_checks(suite, measurements, summary, {}, build.machine())
    assert row.verdict == verdict, row.reason
    assert words in row.reason
    assert ("late_load" in summary[0].flags) is bool(words)


@pytest.mark.parametrize("flag", ["not_alone", "beyond_peak", None])
@pytest.mark.parametrize(("minimum", "verdict"), [(1e3, "pass"), (1e6, "fail")])
def test_no_limit_passes_that_more_than_the_gpu_keeps(
    build: Build, flag: str | None, minimum: float, verdict: str
) -> None:
    """80,000 tokens/s. A shared GPU does less, so a limit that it keeps while shared is kept."""
    point = build.generate(1)
    device = "NVIDIA H200" if flag == "beyond_peak" else "a GPU of tomorrow"
    records = [_fast(build, point, device, attempt, 0.0005) for attempt in (1, 2, 3)]
    records = [_beside(record, 0, 1) if flag == "not_alone" else record for record in records]
    limits = Limits(metric="output_tokens_per_s", minimum=minimum, maximum=None)
    benchmark = Benchmark(
        name="decode", workload="generate", settings={}, axes={}, effort=Effort(), expectations=(limits,)
    )
    measurements = Measurements.of(Plan(points=(point,), skips=()), records)
    suite = suite_of(benchmark)
    (row,) = absolute_checks(suite, measurements, summarize(measurements), {}, build.machine())
    assert row.verdict == ("inconclusive" if flag == "beyond_peak" and verdict == "pass" else verdict), row.reason
    assert ("which no work reaches" in row.reason) is (flag == "beyond_peak" and verdict == "pass")
