"""The plan's report."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pybench.model.container import ContainerRequest, Mount
from pybench.model.suite import Benchmark, Effort, Plan, Point, Skip, Suite
from pybench.model.workloads.generate import Generate
from pybench.report.plan import plan_values, render, takes_text
from tests.builders import RECORD


def _point(count: int, batch_size: int = 1) -> Point:
    return Point(
        id=f"decode[tensor_parallel={count}]" if batch_size == 1 else f"decode[batch_size={batch_size}]",
        benchmark="decode",
        axes={"tensor_parallel": count},
        settings=Generate(
            backend="torch", model="m", tensor_parallel=count, batch_size=batch_size, prompt_tokens=1, output_tokens=2
        ),
        effort=Effort(attempts=3, steps=5),
        architecture={},
    )


def _skip(count: int, reason: str) -> Skip:
    name = f"decode[tensor_parallel={count}]"
    return Skip(id=name, benchmark="decode", axes={"tensor_parallel": count}, num_gpus=count, reason=reason)


def test_points_skips_and_totals() -> None:
    """Nothing is dropped in silence."""
    suite = Suite(name="s", description="what for", benchmarks=(), profile="h200")
    plan = Plan(
        points=(_point(1), _point(2)),
        skips=(_skip(4, "needs 4 GPUs, found 2"),),
        left_out=(_skip(8, "left out by --max-gpus 4"),),
    )
    assert render(suite, plan) == (
        "s, profile h200\n"
        "what for\n"
        "\n"
        "point                      GPUs  attempts  steps\n"
        "────────────────────────────────────────────────\n"
        "decode[tensor_parallel=1]     1         3      5\n"
        "decode[tensor_parallel=2]     2         3      5\n"
        "\n"
        "decode[tensor_parallel=4]: skipped: needs 4 GPUs, found 2\n"
        "decode[tensor_parallel=8]: left out by --max-gpus 4\n"
        "2 points, 6 attempts in 6 processes; 1 skipped, 1 left out\n"
    )


def test_the_time_is_of_attempts_that_are_owed() -> None:
    """Two points of three attempts, of 10 s and 20 s each; of the first point two attempts are made."""
    points = (_point(1), _point(2))
    plan = Plan(points=points, skips=())
    times = dict(zip((point.digest for point in points), (10.0, 20.0), strict=True))
    every = [replace(RECORD, point_id=p.id, point_digest=p.digest, attempt=each) for p in points for each in (1, 2, 3)]
    assert takes_text(plan, times, {}) == "takes about 90s by earlier runs"
    assert takes_text(plan, times, {}, every[:2]) == "the rest takes about 70s by earlier runs"
    known = {points[0].digest: 10.0}
    assert takes_text(plan, known, {}) == "takes about 30s by earlier runs; unknown for 1 of 2 points"
    assert takes_text(plan, times, {}, every) == "nothing is left to measure"


def test_a_reason_that_several_points_have_is_printed_once() -> None:
    """Above them, in the order of the plan."""
    suite = Suite(name="s", description="", benchmarks=())
    skips = (_skip(4, "needs 4 GPUs"), _skip(8, "ties its head"), _skip(2, "needs 4 GPUs"))
    text = render(suite, Plan(points=(), skips=skips, left_out=(_skip(16, "left out: a"), _skip(32, "left out: a"))))
    assert text.endswith(
        "skipped: needs 4 GPUs\n  decode[tensor_parallel=4]\n  decode[tensor_parallel=2]\n"
        "decode[tensor_parallel=8]: skipped: ties its head\n"
        "left out: a\n  decode[tensor_parallel=16]\n  decode[tensor_parallel=32]\n"
        "0 points, 0 attempts in 0 processes; 3 skipped, 2 left out\n"
    )


@pytest.mark.parametrize(
    ("changes", "part"),
    [({"backend": "tensorrt_llm"}, "tensorrt_llm"), ({"backend": "server", "server": "trtllm"}, "trtllm")],
)
def test_what_no_gpu_has_run_yet_is_named(changes: dict[str, str], part: str) -> None:
    """The plan names the part at each of its points."""
    point = _point(1)
    new = replace(point, settings=replace(point.settings, **changes))  # type: ignore[arg-type]
    text = render(Suite(name="s", description="", benchmarks=()), Plan(points=(new, _point(2)), skips=()))
    assert text.count("never run") == 1
    assert f"{point.id}: never run: no GPU has run pybench's {part} yet" in " ".join(text.split())


def test_points_that_share_a_process_are_counted() -> None:
    """Three attempts of two points in three processes; the third point needs another engine."""
    suite = Suite(name="s", description="what for", benchmarks=())
    text = render(suite, Plan(points=(_point(1), _point(1, batch_size=4), _point(2)), skips=()))
    assert text.endswith("\n3 points, 9 attempts in 6 processes\n")
    alone = replace(_point(1), effort=Effort(attempts=1, steps=5))
    assert "\n1 point, 1 attempt in 1 process\n" in render(suite, Plan(points=(alone,), skips=()))


def test_long_names_and_reasons_stay_within_80_columns() -> None:
    """A name is wrapped between axes in its column, a reason on a deeper line; numbers stay on their point's line."""
    long = replace(_point(1), id=f"decode[{'a_setting=value,' * 6}b=1]")
    skip = replace(_skip(4, "needs what is not here: " + "and more of it, " * 8), id=long.id)
    text = render(Suite(name="s", description="what for " * 12, benchmarks=()), Plan(points=(long,), skips=(skip,)))
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"^decode\[a_setting=value,.* 1 +3 +5$", text, re.MULTILINE)
    assert re.search(r"^  (a_setting=value,)+b=1\]$", text, re.MULTILINE)  # no axis is cut


def test_what_a_suite_wants_of_the_host() -> None:
    """Mounts, secrets and isolation given up are shown before anything runs; no text steers the terminal."""
    request = ContainerRequest(
        image="vllm",
        mounts=(Mount(source="/data", target="/sets"),),
        environment={"A": "1"},
        secrets=("HF_TOKEN",),
        relax=("network",),
    )
    suite = Suite(name="s", description="what\x9b31m\u202e for", benchmarks=(), container=request)
    lines = render(suite, Plan(points=(), skips=())).splitlines()
    assert lines[:2] == ["s", "what 31m  for"]
    assert [line for line in lines if line.startswith("container ")] == [
        "container image: vllm",
        "container mounts, read-only: /data at /sets",
        "container environment: A=1",
        "container secrets passed on: HF_TOKEN",
        "container isolation given up: network",
    ]


def test_benchmarks_that_the_profile_omits_are_one_line() -> None:
    """It stands behind the points left out. A profile that omits none has no such line."""
    suite = Suite(name="s", description="", benchmarks=(), profile="cpu", omitted=("a", "b"))
    plan = Plan(points=(), skips=(), left_out=(_skip(8, "left out by --max-gpus 4"),))
    lines = render(suite, plan).splitlines()
    place = lines.index("omitted by profile cpu: a, b")
    assert lines[place - 1].endswith(": left out by --max-gpus 4")
    assert "omitted" not in render(replace(suite, omitted=()), plan)
    assert plan_values(suite, plan, {}, {}, {}).omitted == ("a", "b")


def test_a_batch_made_to_fill_the_gpus_is_named() -> None:
    """A batch is named once for all its benchmarks; the points' names have the axes."""
    one = Benchmark(name="a", workload="train", settings={}, axes={"data_parallel": (3,)}, effort=Effort())
    one = replace(one, implied={"data_parallel": (3,), "global_batch_size": (9,)})
    suite = Suite(name="s", description="what for", benchmarks=(one, replace(one, name="b")))
    lines = render(suite, Plan(points=(), skips=()), assumed="3 x h200").splitlines()
    assert lines[1:5] == [
        "what for",
        "planned for 3 x h200, not for this machine",
        "global_batch_size 9, rounded up to fill the GPUs: a, b",
        "",
    ]
