"""Results made by hand: every status and verdict once, text meant to break out, and nothing at all."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from pybench.model.manifest import Containment
from pybench.model.results import (
    CheckResult,
    ComparisonResult,
    Estimate,
    NodeCheck,
    PhaseResult,
    PointResult,
    PointStatus,
    Results,
    ScalingResult,
)
from pybench.model.verdict import Counts, Expected, Verdict
from pybench.model.workloads.generate import PERCENTILES, percentile_name
from tests.builders import (
    CHECK,
    COMPARISON,
    NODE_CHECK,
    POINT_RESULT,
    PROVENANCE,
    RESULTS,
    SCALING,
    estimate,
)

HOSTILE = (
    "a|b <script>&amp; ]]> \"q\" 'q'\n\r\t\x00\x1b[31mred\x1b[0m"
    "\u202e`tick` [link](http://x) [bold]x[/bold] ünï 😀\ud800"
)

_TABLE = Expected(minimum=1.805, maximum=1.995, source="a vendor's guide", table="tensor_parallel_generate")


def _point(count: int, status: PointStatus = "ok") -> PointResult:
    return replace(
        POINT_RESULT, id=_id(count), axes={"backend": "torch", "tensor_parallel": count}, status=status, num_gpus=count
    )


def _id(count: int) -> str:
    return f"decode[backend=torch,tensor_parallel={count}]"


def _row(verdict: Verdict, count: int) -> ScalingResult:
    return replace(
        SCALING,
        group={"backend": "torch"},
        count=count,
        point_id=_id(count),
        baseline_id=_id(1),
        expected=_TABLE,
        verdict=verdict,
        reason=f"because {verdict}",
    )


def _measured_row(verdict: Verdict, count: int) -> ScalingResult:
    return replace(_row(verdict, count), speedup=1.9, speedup_low=1.8761, speedup_high=1.9239, efficiency=0.95)


def _check(verdict: Verdict, value: Estimate | None, minimum: float | None, maximum: float | None) -> CheckResult:
    return replace(
        CHECK,
        point_id=_id(1),
        value=value,
        minimum=minimum,
        maximum=maximum,
        verdict=verdict,
        reason=f"because {verdict}",
    )


def _slowest(verdict: Verdict, subject: str, value: float) -> NodeCheck:
    check = replace(NODE_CHECK, name="slowest", subject=subject, verdict=verdict, reason=f"because {verdict}")
    return replace(check, point_id=_id(1), value=value, limit=-0.1)


def _comparison(verdict: Verdict) -> ComparisonResult:
    return replace(COMPARISON, point_id=_id(2), other_id=_id(4), verdict=verdict, reason=f"because {verdict}")


_PHASES = (
    PhaseResult(name="prefill", duration_s=0.25, energy_j=200.5, low_j=190.0, high_j=211.0),
    PhaseResult(name="decode", duration_s=1.5, energy_j=1034.0, low_j=1020.0, high_j=1048.0, flags=("alias_risk",)),
)
_MEASURED = {
    "output_tokens_per_s": estimate(12345.678, "tokens/s", 12300.0, 12400.5),
    "ttft_s": estimate(0.0123, "s", 0.0120, 0.0126),
    "tpot_s": estimate(0.00123, "s"),
    "energy_j_per_output_token": estimate(0.0123456, "J/token", 0.0121, 0.0126),
    "mean_power_w": estimate(456.78, "W"),
    "peak_memory_bytes": estimate(17179869184.0, "bytes"),
}
_SERVED = {
    **{percentile_name("ttft", p): estimate(p / 1000, "s") for p in PERCENTILES},
    **{percentile_name("e2e", p): estimate(p / 10, "s") for p in PERCENTILES},
    "mfu_fraction": estimate(0.4567),
    "kv_cache_tokens": estimate(812345.0, "tokens"),
    "num_preemptions": estimate(0.0),
}


_RUN = replace(
    RESULTS,
    run_id="20261121T081500Z-tp_scaling",
    suite="tp_scaling",
    description="Tensor-parallel generation, against the expected speedup table",
    profile="h200",
    machine="h200",
    fingerprint="0123456789abcdef",
    provenance=replace(
        PROVENANCE,
        engine="podman",
        containment=Containment(
            engine="podman",
            engine_version="4.3.1",
            images=("vllm-0.31.0 docker.io/vllm/vllm-openai@sha256:a4a4c0437bf7",),
            pinned=True,
            relaxations=("ulimit_memlock",),
        ),
        gpu_names=("NVIDIA H200",) * 4,
        driver="580.00",
        worker_driver="580.00",
        forward_compatible=False,
        cpu_model="CPU",
        packages={"python": "3.12.3", "torch": "2.11.0"},
        environment={"NCCL_ALGO": "Ring"},
    ),
    verdict="fail",
    reason="decode[backend=torch,tensor_parallel=3]: output_tokens_per_s: because fail",
)
_POINTS = (
    replace(
        _point(1),
        metrics=_MEASURED,
        energy_by_gpu_j={"GPU-11111111-2222-3333-4444-555555555555": 1234.5},
        energy_phases=_PHASES,
        shared_with=(_id(2),),
    ),
    replace(
        _point(2),
        failed_attempts=1,
        metrics={"output_tokens_per_s": estimate(0.4321, "tokens/s"), **_SERVED},
        energy_by_gpu_j={
            "GPU-11111111-2222-3333-4444-555555555555": 700.25,
            "GPU-66666666-7777-8888-9999-000000000000": 699.75,
        },
        flags=("not_steady", "single_attempt"),
        shared_with=(_id(1),),
    ),
    replace(_point(4, "failed"), reason="out_of_memory: tried 2 GiB", failed_attempts=3),
    replace(_point(5, "missing"), reason="not measured", attempts=0),
    replace(_point(8, "skipped"), reason="needs 8 GPUs, found 4", attempts=0),
)
_SCALING = (
    _measured_row("pass", 2),
    replace(_measured_row("fail", 3), flags=("suspect_baseline",)),
    _row("error", 4),
    _row("missing", 5),
    replace(_measured_row("inconclusive", 6), speedup_low=None, speedup_high=None),
    replace(_measured_row("no_expectation", 7), expected=None),
)
_COMPARISONS = (
    replace(_comparison("pass"), ratio=0.9, low=0.88, high=0.92),
    replace(_comparison("missing"), other_id=_id(5)),
    replace(
        _comparison("inconclusive"),
        ratio=0.95,
        low=0.85,
        high=1.06,
        flags=("starved_baseline",),
        widening_along="batch_size",
        first_point_id=_id(1),
        first_other_id=_id(5),
    ),
)


@pytest.fixture
def results() -> Results:
    """Every point status, every verdict of a scaling row, three limits."""
    return replace(
        _RUN,
        points=_POINTS,
        scaling=_SCALING,
        checks=(
            _check("pass", _MEASURED["ttft_s"], None, 0.02),
            _check("fail", _MEASURED["ttft_s"], 0.5, 1.0),
            _check("missing", None, 0.5, None),
        ),
        comparisons=_COMPARISONS,
        counts=Counts(expected=14, judged=9, passed=4, failed=3, inconclusive=2, missing=4, without_figure=1),
        node=(
            _slowest("fail", "GPU 1 (GPU-66666666-7777-8888-9999-000000000000)", -0.21),
            replace(NODE_CHECK, reason="because pass"),
        ),
    )


@pytest.fixture
def empty() -> Results:
    """A run that shows nothing."""
    return RESULTS


@pytest.fixture
def all_skipped() -> Results:
    """A run whose every point this machine could only skip."""
    return replace(RESULTS, points=(replace(_point(8, "skipped"), reason="needs 8 GPUs, found 0", attempts=0),))


_HOSTILE = Containment(engine=HOSTILE, engine_version=HOSTILE, images=(HOSTILE,), pinned=False, relaxations=(HOSTILE,))
_HOSTILE_POINT = replace(
    _point(1, "failed"), id=HOSTILE, reason=HOSTILE, flags=(HOSTILE,), energy_by_gpu_j={HOSTILE: 1.0}
)


@pytest.fixture
def hostile(results: Results) -> Results:
    """The same text, meant to break out of its place, wherever text can stand."""
    return replace(
        results,
        run_id=HOSTILE,
        suite=HOSTILE,
        description=HOSTILE,
        profile=HOSTILE,
        machine=HOSTILE,
        provenance=replace(results.provenance, containment=_HOSTILE, driver=HOSTILE, packages={HOSTILE: HOSTILE}),
        reason=HOSTILE,
        points=(_HOSTILE_POINT,),
        scaling=(
            replace(_measured_row("fail", 2), point_id=HOSTILE, metric=HOSTILE, reason=HOSTILE, flags=(HOSTILE,)),
        ),
        checks=(replace(results.checks[0], point_id=HOSTILE, metric=HOSTILE, reason=HOSTILE),),
        node=(replace(NODE_CHECK, name=HOSTILE, subject=HOSTILE, verdict="fail", reason="because fail"),),
        comparisons=(replace(results.comparisons[0], point_id=HOSTILE, other_id=HOSTILE, reason=HOSTILE),),
    )


@pytest.fixture
def verdicts() -> tuple[Verdict, ...]:
    """Every verdict there is."""
    return get_args(Verdict)
