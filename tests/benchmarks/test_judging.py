"""Judging a long run: 3,334 points of three attempts each, every one with a speedup over its baseline."""

from __future__ import annotations

import dataclasses
import math
import resource
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pybench.core.plan import point_id
from pybench.files.run.folder import RunFolder
from pybench.files.run.journal import encode_line
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.suite import AxisValue, Benchmark, Effort, ExpectedTable, Plan, Point, RatioRow, Scaling
from tests.api import judged, suite_of
from tests.build import Build

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
        created_utc="2026-11-28T00:00:00+00:00",
        pybench_version="0",
        suite=suite_of(benchmark),
        plan=Plan(points=points, skips=()),
        device="cuda",
        machine=build.machine(),
        fingerprint="f",
        tables={"t": table},
        worker_sha256="",
        engine="none",
    )


@pytest.mark.benchmark(timer=time.process_time)
def test_ten_thousand_records(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: under 5 s of CPU and 1 GB. Before, 3,072 records took 246 s to report."""
    manifest, records = _run()
    results = benchmark.pedantic(lambda: judged(manifest, records), rounds=3)
    assert (len(records), len(results.scaling)) == (2 * NUM_PAIRS * NUM_ATTEMPTS, NUM_PAIRS)
    tracemalloc.start()
    judged(manifest, records)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    benchmark.extra_info["peak_mib"] = round(peak_bytes / 2**20)
    with capsys.disabled():
        print(
            f"\n  {len(records)} records: {benchmark.stats.stats.median:.2f} s (goal 5), {peak_bytes / 2**20:.0f} MiB"
        )


def test_report_of_ten_thousand_records(benchmark: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """``pybench report RUN``, from exec to exit: read, check, judge and print a line a point. Goal: 5 s and 1 GB."""
    manifest, records = _run()
    folder = RunFolder.create(tmp_path, "s")
    folder.write_manifest(manifest)
    lines = (encode_line(record, sequence) for sequence, record in enumerate(records, 1))
    (folder.path / "journal.jsonl").write_bytes(b"".join(lines))
    command = (str(Path(sys.executable).with_name("pybench")), "report", str(folder.path))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = benchmark.pedantic(lambda: subprocess.check_output(command, text=True), rounds=3)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert sum(line.startswith("batch ") for line in printed.splitlines()) == 2 * NUM_PAIRS
    cpu_s = (used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime) / 3
    benchmark.extra_info |= {"cpu_s": round(cpu_s, 2), "peak_mib": used.ru_maxrss // 2**10}
    took = f"{benchmark.stats.stats.median:.2f} s, {cpu_s:.2f} s of CPU (goal 5), {used.ru_maxrss / 2**10:.0f} MiB"
    with capsys.disabled():
        print(f"\n  report of {len(records)} records: {took}")
