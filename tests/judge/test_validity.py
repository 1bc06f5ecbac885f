"""Points that may not serve as a baseline."""

from __future__ import annotations

from typing import Any

import pytest

from pybench.judge.measurements import Measurements, metric_samples
from pybench.judge.scaling import scaling_results
from pybench.judge.summary import summarize
from pybench.judge.validity import starvation
from pybench.model.effort import Effort
from pybench.model.expected import ExpectedTable, RatioRow
from pybench.model.suite import Benchmark, Plan, Scaling, Suite
from pybench.model.wire import Step, Work
from tests.judge.conftest import Build


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
    suite = Suite(name="s", description="", benchmarks=(benchmark,))
    (found,) = scaling_results(suite, Measurements.of(plan, [*hungry, *sated]), {"t": table}, build.machine())
    assert (found.verdict, found.flags, found.speedup) == ("inconclusive", ("starved_baseline",), 2.0)
    assert found.reason == "no valid baseline: 1 preemptions in a step for want of key-value cache"
    starved, fed = summarize(Measurements.of(plan, [*hungry, *sated]))
    assert ("kv_starved" in starved.flags, "kv_starved" in fed.flags) == (True, False)
