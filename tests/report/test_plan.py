"""The plan's report."""

from __future__ import annotations

from pybench.model.container import ContainerRequest, Mount
from pybench.model.effort import Effort
from pybench.model.suite import Plan, Point, Skip, Suite
from pybench.model.workloads.generate import Generate
from pybench.report.plan import render


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
        "s, profile h200: what for\n"
        "  decode[tensor_parallel=1]: 1 GPUs or ranks, 3 attempts of 5 steps\n"
        "  decode[tensor_parallel=2]: 2 GPUs or ranks, 3 attempts of 5 steps\n"
        "  decode[tensor_parallel=4]: skipped: needs 4 GPUs, found 2\n"
        "  decode[tensor_parallel=8]: left out by --max-gpus 4\n"
        "2 points, 6 attempts in 6 processes; 1 skipped, 1 left out\n"
    )


def test_points_that_share_a_process_say_so() -> None:
    """Three attempts of two points in three processes; the third point needs another engine."""
    suite = Suite(name="s", description="what for", benchmarks=())
    assert render(suite, Plan(points=(_point(1), _point(1, batch_size=4), _point(2)), skips=())) == (
        "s: what for\n"
        "  decode[tensor_parallel=1]: 1 GPUs or ranks, 3 attempts of 5 steps, process shared by 2 points\n"
        "  decode[batch_size=4]: 1 GPUs or ranks, 3 attempts of 5 steps, process shared by 2 points\n"
        "  decode[tensor_parallel=2]: 2 GPUs or ranks, 3 attempts of 5 steps\n"
        "3 points, 9 attempts in 6 processes; 0 skipped, 0 left out\n"
    )


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
    assert lines[0] == "s: what 31m  for"
    assert [line for line in lines if line.startswith("container ")] == [
        "container image: vllm",
        "container mounts, read-only: /data at /sets",
        "container environment: A=1",
        "container secrets passed on: HF_TOKEN",
        "container isolation given up: network",
    ]
