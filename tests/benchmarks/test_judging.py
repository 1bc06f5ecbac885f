"""Judging a long run: 3,334 points of three attempts each, every one with a speedup over its baseline."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from pybench.compute.plan import point_id
from pybench.judge.assemble import assemble
from pybench.judge.measurements import Measurements
from pybench.model.effort import Effort
from pybench.model.expected import ExpectedTable, RatioRow
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.suite import AxisValue, Benchmark, Plan, Point, Scaling, Suite
from tests.judge.conftest import Build

NUM_PAIRS, NUM_ATTEMPTS = 1667, 3
_BATCHES = range(1, NUM_PAIRS + 1)


def _run() -> tuple[Manifest, list[Record]]:
    """Two GPUs are 1.9 times one, with 1 % between attempts."""
    build, random = Build(), np.random.default_rng(1)
    points, records = [], []
    for batch in _BATCHES:
        for count, seconds in ((1, 1.9), (2, 1.0)):
            point = _point(build, batch, count)
            points.append(point)
            lengths = (seconds * math.exp(0.01 * noise) for noise in random.standard_normal(NUM_ATTEMPTS))
            measured = build.measured(point, [[length] * 5 for length in lengths])
            records += [dataclasses.replace(record, log=f"{point.id}.{record.attempt}") for record in measured]
    row = RatioRow(
        machine="any",
        workload="generate",
        metric="output_tokens_per_s",
        count=2,
        value=1.9,
        kind="measured",
        source="made up",
    )
    return _manifest(build, tuple(points), ExpectedTable(name="t", description="", rows=(row,))), records


def _point(build: Build, batch: int, count: int) -> Point:
    point: Point = build.generate(count)
    axes: dict[str, AxisValue] = {"batch_size": batch, "tensor_parallel": count}
    return dataclasses.replace(point, axes=axes, id=point_id("decode", axes))


def _manifest(build: Build, points: tuple[Point, ...], table: ExpectedTable) -> Manifest:
    scaling = Scaling(metric="output_tokens_per_s", scaling="strong", along="tensor_parallel", table="t")
    benchmark = Benchmark(
        name="decode",
        workload="generate",
        settings={"backend": "torch", "model": "m"},
        axes={"batch_size": tuple(_BATCHES), "tensor_parallel": (1, 2)},
        effort=Effort(),
        expectations=(scaling,),
    )
    return Manifest(
        run_id="r",
        created_utc="",
        pybench_version="0",
        suite=Suite(name="s", description="", benchmarks=(benchmark,)),
        plan=Plan(points=points, skips=()),
        device="cuda",
        machine=build.machine(),
        fingerprint="f",
        tables={"t": table},
        worker_sha256="",
        engine="none",
    )


def test_ten_thousand_records(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: under 5 s and 1 GB. Before, 3,072 records took 246 s to report."""
    manifest, records = _run()
    results = benchmark.pedantic(lambda: assemble(manifest, Measurements.of(manifest.plan, records)), rounds=3)
    assert (len(records), len(results.scaling)) == (2 * NUM_PAIRS * NUM_ATTEMPTS, NUM_PAIRS)
    tracemalloc.start()
    assemble(manifest, Measurements.of(manifest.plan, records))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    benchmark.extra_info["peak_mib"] = round(peak_bytes / 2**20)
    with capsys.disabled():
        print(
            f"\n  {len(records)} records: {benchmark.stats.stats.median:.2f} s (goal 5), {peak_bytes / 2**20:.0f} MiB"
        )
