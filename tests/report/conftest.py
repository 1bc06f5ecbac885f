"""Results made by hand: every status and verdict once, text meant to break out, and nothing at all."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest

from pybench.model.results import (
    CheckResult,
    ComparisonResult,
    Containment,
    Counts,
    Estimate,
    Expected,
    NodeCheck,
    PhaseResult,
    PointResult,
    PointStatus,
    Provenance,
    Results,
    ScalingResult,
    Verdict,
)
from pybench.model.workloads.latency import PERCENTILES

HOSTILE = (
    "a|b <script>&amp; ]]> \"q\" 'q'\n\r\t\x00\x1b[31mred\x1b[0m"
    "\u202e`tick` [link](http://x) [bold]x[/bold] ünï 😀\ud800"
)

_TABLE = Expected(minimum=1.805, maximum=1.995, source="a vendor's guide", table="tensor_parallel_generate")


def _estimate(value: float, low: float | None, high: float | None, unit: str) -> Estimate:
    return Estimate(value=value, low=low, high=high, unit=unit)


def _point(count: int, status: PointStatus = "ok", **fields: Any) -> PointResult:
    defaults: dict[str, Any] = {
        "id": f"decode[backend=torch,tensor_parallel={count}]",
        "benchmark": "decode",
        "axes": {"backend": "torch", "tensor_parallel": count},
        "status": status,
        "reason": None,
        "num_gpus": count,
        "attempts": 3,
        "failed_attempts": 0,
        "metrics": {},
        "energy_by_gpu_j": {},
    }
    return PointResult(**{**defaults, **fields})


def _row(verdict: Verdict, count: int, **fields: Any) -> ScalingResult:
    defaults: dict[str, Any] = {
        "benchmark": "decode",
        "metric": "output_tokens_per_s",
        "scaling": "strong",
        "along": "tensor_parallel",
        "group": {"backend": "torch"},
        "count": count,
        "baseline_count": 1,
        "point_id": f"decode[backend=torch,tensor_parallel={count}]",
        "baseline_id": "decode[backend=torch,tensor_parallel=1]",
        "speedup": 1.9,
        "speedup_low": 1.8761,
        "speedup_high": 1.9239,
        "efficiency": 0.95,
        "expected": _TABLE,
        "verdict": verdict,
        "reason": f"because {verdict}",
    }
    return ScalingResult(**{**defaults, **fields})


def _check(verdict: Verdict, value: Estimate | None, minimum: float | None, maximum: float | None) -> CheckResult:
    return CheckResult(
        benchmark="decode",
        metric="ttft_s",
        point_id="decode[backend=torch,tensor_parallel=1]",
        value=value,
        minimum=minimum,
        maximum=maximum,
        verdict=verdict,
        reason=f"because {verdict}",
    )


def _node(name: str, subject: str, verdict: Verdict, value: float | None) -> NodeCheck:
    return NodeCheck(
        name=name,
        subject=subject,
        point_id=None if value is None else "decode[backend=torch,tensor_parallel=1]",
        value=value,
        limit=None if value is None else -0.1,
        unit="fraction",
        verdict=verdict,
        reason=f"because {verdict}",
    )


def _comparison(verdict: Verdict, **found: Any) -> ComparisonResult:
    return ComparisonResult(
        benchmark="decode",
        metric="energy_j_per_output_token",
        order="below",
        point_id="decode[backend=torch,tensor_parallel=2]",
        verdict=verdict,
        reason=f"because {verdict}",
        **{"other_id": "decode[backend=torch,tensor_parallel=4]", **found},
    )


_PHASES = (
    PhaseResult(name="prefill", duration_s=0.25, energy_j=200.5, low_j=190.0, high_j=211.0),
    PhaseResult(name="decode", duration_s=1.5, energy_j=1034.0, low_j=1020.0, high_j=1048.0, flags=("alias_risk",)),
)
_UNKNOWN: dict[str, Any] = {"speedup": None, "speedup_low": None, "speedup_high": None, "efficiency": None}
_MEASURED = {
    "output_tokens_per_s": _estimate(12345.678, 12300.0, 12400.5, "tokens/s"),
    "ttft_s": _estimate(0.0123, 0.0120, 0.0126, "s"),
    "tpot_s": _estimate(0.00123, None, None, "s"),
    "energy_j_per_output_token": _estimate(0.0123456, 0.0121, 0.0126, "J/token"),
    "mean_power_w": _estimate(456.78, None, None, "W"),
    "peak_memory_bytes": _estimate(17179869184.0, None, None, "bytes"),
}
_SERVED = {
    **{f"ttft_p{p}_s": _estimate(p / 1000, None, None, "s") for p in PERCENTILES},
    **{f"e2e_p{p}_s": _estimate(p / 10, None, None, "s") for p in PERCENTILES},
    "mfu_fraction": _estimate(0.4567, None, None, ""),
    "kv_cache_tokens": _estimate(812345.0, None, None, "tokens"),
    "num_preemptions": _estimate(0.0, None, None, ""),
}


@pytest.fixture
def results() -> Results:
    """Every point status, every verdict of a scaling row, three limits."""
    return Results(
        run_id="20261121T081500Z-tp_scaling",
        suite="tp_scaling",
        description="Tensor-parallel generation, against the expected speedup table",
        profile="h200",
        machine="h200",
        fingerprint="0123456789abcdef",
        provenance=Provenance(
            created_utc="2026-11-21T08:15:00+00:00",
            pybench_version="0.1.0",
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
            kernel="6.1",
            packages={"python": "3.12.3", "torch": "2.11.0"},
            environment={"NCCL_ALGO": "Ring"},
        ),
        verdict="fail",
        reason="decode[backend=torch,tensor_parallel=3]: output_tokens_per_s: because fail",
        points=(
            _point(
                1,
                metrics=_MEASURED,
                energy_by_gpu_j={"GPU-11111111-2222-3333-4444-555555555555": 1234.5},
                energy_phases=_PHASES,
                shared_with=("decode[backend=torch,tensor_parallel=2]",),
            ),
            _point(
                2,
                failed_attempts=1,
                metrics={"output_tokens_per_s": _estimate(0.4321, None, None, "tokens/s"), **_SERVED},
                energy_by_gpu_j={
                    "GPU-11111111-2222-3333-4444-555555555555": 700.25,
                    "GPU-66666666-7777-8888-9999-000000000000": 699.75,
                },
                flags=("not_steady", "single_attempt"),
                shared_with=("decode[backend=torch,tensor_parallel=1]",),
            ),
            _point(4, "failed", reason="out_of_memory: tried 2 GiB", failed_attempts=3),
            _point(5, "missing", reason="not measured", attempts=0),
            _point(8, "skipped", reason="needs 8 GPUs, found 4", attempts=0),
        ),
        scaling=(
            _row("pass", 2),
            _row("fail", 3, flags=("suspect_baseline",)),
            _row("error", 4, **_UNKNOWN),
            _row("missing", 5, **_UNKNOWN),
            _row("inconclusive", 6, speedup_low=None, speedup_high=None),
            _row("no_expectation", 7, expected=None),
        ),
        checks=(
            _check("pass", _MEASURED["ttft_s"], None, 0.02),
            _check("fail", _MEASURED["ttft_s"], 0.5, 1.0),
            _check("missing", None, 0.5, None),
        ),
        comparisons=(
            _comparison("pass", ratio=0.9, low=0.88, high=0.92),
            _comparison("missing", other_id="decode[backend=torch,tensor_parallel=5]", ratio=None, low=None, high=None),
            _comparison(
                "inconclusive",
                ratio=0.95,
                low=0.85,
                high=1.06,
                flags=("starved_baseline",),
                widening_along="batch_size",
                first_point_id="decode[backend=torch,tensor_parallel=1]",
                first_other_id="decode[backend=torch,tensor_parallel=5]",
            ),
        ),
        counts=Counts(expected=14, judged=9, passed=4, failed=3, inconclusive=2, missing=4, without_figure=1),
        node=(
            _node("slowest", "GPU 1 (GPU-66666666-7777-8888-9999-000000000000)", "fail", -0.21),
            _node("pcie", "all GPUs", "pass", None),
        ),
    )


@pytest.fixture
def empty() -> Results:
    """A run that shows nothing."""
    return Results(
        run_id="run",
        suite="suite",
        description="",
        profile=None,
        machine="cpu",
        fingerprint="",
        provenance=Provenance(
            created_utc="2026-11-21T08:15:00+00:00",
            pybench_version="0.1.0",
            engine="none",
            containment=None,
            gpu_names=(),
            driver=None,
            worker_driver=None,
            forward_compatible=None,
            cpu_model=None,
            kernel="6.1",
            packages={},
        ),
        verdict="missing",
        reason="nothing was measured",
        points=(),
        scaling=(),
        checks=(),
    )


@pytest.fixture
def all_skipped(empty: Results) -> Results:
    """A run whose every point this machine could only skip."""
    return dataclasses.replace(empty, points=(_point(8, "skipped", reason="needs 8 GPUs, found 0", attempts=0),))


_HOSTILE = Containment(engine=HOSTILE, engine_version=HOSTILE, images=(HOSTILE,), pinned=False, relaxations=(HOSTILE,))


@pytest.fixture
def hostile(results: Results) -> Results:
    """The same text, meant to break out of its place, wherever text can stand."""
    return dataclasses.replace(
        results,
        run_id=HOSTILE,
        suite=HOSTILE,
        description=HOSTILE,
        profile=HOSTILE,
        machine=HOSTILE,
        provenance=dataclasses.replace(
            results.provenance, containment=_HOSTILE, driver=HOSTILE, packages={HOSTILE: HOSTILE}
        ),
        reason=HOSTILE,
        points=(_point(1, "failed", id=HOSTILE, reason=HOSTILE, flags=(HOSTILE,), energy_by_gpu_j={HOSTILE: 1.0}),),
        scaling=(_row("fail", 2, point_id=HOSTILE, metric=HOSTILE, reason=HOSTILE, flags=(HOSTILE,)),),
        checks=(dataclasses.replace(results.checks[0], point_id=HOSTILE, metric=HOSTILE, reason=HOSTILE),),
        node=(_node(HOSTILE, HOSTILE, "fail", None),),
        comparisons=(dataclasses.replace(results.comparisons[0], point_id=HOSTILE, other_id=HOSTILE, reason=HOSTILE),),
    )


@pytest.fixture
def verdicts() -> tuple[Verdict, ...]:
    """Every verdict there is."""
    return get_args(Verdict)
