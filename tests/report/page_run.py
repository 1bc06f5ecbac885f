"""A run's folder with power traces, made by hand: good attempts of one point on 4 GPUs, and one that failed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from pybench.model.machine import HostClock, HostPart
from pybench.model.record import Energy, GpuEnergy
from pybench.model.results import Results
from pybench.model.suite import Plan
from pybench.model.wire import RequestTimes, Step, Work
from pybench.power.trace import CounterColumns, GpuTrace, OffsetColumns, PowerTrace, SeriesColumns, SlowColumns
from pybench.power.trace_file import write_trace
from pybench.report.run.view import RunView
from tests.build import Build
from tests.builders import MANIFEST

SECOND = 1_000_000_000


def power_trace(num_gpus: int, num_samples: int, *, period_ns: int = 20_000_000) -> PowerTrace:
    """``num_samples`` of each GPU from 1 s on: a square wave of 2 s between 200 and 600 W, with one peak each.

    Its noise has the steps of 323 mW that an H200 reports.
    """
    random = np.random.default_rng(7)
    times_ns = SECOND + np.arange(num_samples) * period_ns + random.integers(0, 2_000_000, num_samples)
    end_ns = int(times_ns[-1]) + SECOND
    gpus = []
    for index in range(num_gpus):
        high = (times_ns // SECOND) % 2 == 1
        power_mw = np.where(high, 600_000, 200_000) + 323 * random.integers(-46, 47, num_samples)
        power_mw[num_samples // 3 + index] = 700_000 + index
        slow_ns = np.arange(SECOND, end_ns, SECOND)
        counter_ns = np.arange(SECOND, end_ns, SECOND // 10)
        gpus.append(
            GpuTrace(
                uuid=f"GPU-{index}",
                index=index,
                name="NVIDIA H200",
                series=SeriesColumns(realtime_ns=times_ns, power_mw=power_mw),  # type: ignore[arg-type]
                slow=SlowColumns(
                    t_ns=slow_ns,  # type: ignore[arg-type]
                    temperature_c=np.full(len(slow_ns), 61),  # type: ignore[arg-type]
                    sm_clock_mhz=np.full(len(slow_ns), 1755),  # type: ignore[arg-type]
                    memory_clock_mhz=np.full(len(slow_ns), 3201),  # type: ignore[arg-type]
                    gpu_utilization_percent=np.full(len(slow_ns), 99),  # type: ignore[arg-type]
                    clock_event_reasons=np.where(np.arange(len(slow_ns)) % 3 == 1, 4, 0),  # type: ignore[arg-type]
                ),
                counter=CounterColumns(
                    before_ns=counter_ns,  # type: ignore[arg-type]
                    after_ns=counter_ns + 1000,  # type: ignore[arg-type]
                    energy_mj=np.arange(len(counter_ns)) // 2 * 40_000,  # type: ignore[arg-type]
                ),
            )
        )
    return PowerTrace(
        start_ns=0,
        end_ns=end_ns,
        gpus=tuple(gpus),
        offsets=OffsetColumns(t_ns=(0,), realtime_offset_ns=(0,), set_by_ns=(0,)),
    )


def traced_run(
    path: Path, results: Results, *, num_samples: int = 600, num_gpus: int = 4, attempts: int = 2
) -> RunView:
    """The hand-made results with records and traces below ``path``: one good point, one failed attempt."""
    build = Build()
    point = dataclasses.replace(build.generate(1), id="decode[backend=torch,tensor_parallel=1]")
    steps = build.steps([2.0, 2.0, 3.6, 2.0], Work(prompt_tokens=100, output_tokens=40), start_s=2.0, rounds=10)
    trace = power_trace(num_gpus, num_samples)
    records = []
    for attempt in range(1, attempts + 1):
        write_trace(trace, path / f"trace.{attempt}.npz")
        energy = Energy(
            start_ns=2 * SECOND,
            end_ns=11 * SECOND,
            gpus=tuple(
                GpuEnergy(
                    uuid=f"GPU-{i}",
                    index=i,
                    energy_j=3600.0 + i,
                    energy_low_j=3550.0,
                    energy_high_j=3660.0,
                    mean_power_w=400.0,
                    max_power_w=700.0,
                    method="series",
                )
                for i in range(num_gpus)
            ),
        )
        record = build.record(point, (build.rank(steps),), attempt, energy=energy)
        records.append(dataclasses.replace(record, trace=f"trace.{attempt}.npz", point_digest=point.digest))
    failed = dataclasses.replace(build.failed(point, attempts + 1), point_digest=point.digest)
    manifest = dataclasses.replace(MANIFEST, plan=Plan(points=(point,), skips=()))
    return RunView(results=results, manifest=manifest, records=(*records, failed), path=path)


AHEAD_NS = 5 * SECOND


def run_over_hosts(path: Path, results: Results) -> RunView:
    """One good attempt on two hosts with traces of the same moments; the other one's clock is ahead by 5 s."""
    view = traced_run(path, results, num_gpus=1, attempts=1)
    trace = power_trace(1, 600)
    late = dataclasses.replace(
        trace,
        start_ns=trace.start_ns + AHEAD_NS,
        end_ns=trace.end_ns + AHEAD_NS,
        gpus=tuple(map(_later, trace.gpus)),
        offsets=OffsetColumns(t_ns=(AHEAD_NS,), realtime_offset_ns=(-AHEAD_NS,), set_by_ns=(0,)),
    )
    write_trace(late, path / "trace.n2.npz")
    there = HostClock(offset_ns=AHEAD_NS, bound_ns=1000)
    parts = (
        HostPart(name="n1", ranks=(0, 1), gpu_uuids=("GPU-0",), trace="trace.1.npz"),
        HostPart(name="n2", ranks=(1, 1), gpu_uuids=("GPU-0",), trace="trace.n2.npz", clock=there),
    )
    return dataclasses.replace(view, records=(dataclasses.replace(view.records[0], hosts=parts),))


def _later(gpu: GpuTrace) -> GpuTrace:
    """What was stamped by the host's monotonic clock; the driver's series has the wall clock's stamps."""
    return dataclasses.replace(
        gpu,
        slow=dataclasses.replace(gpu.slow, t_ns=_later_ns(gpu.slow.t_ns)),
        counter=dataclasses.replace(
            gpu.counter, before_ns=_later_ns(gpu.counter.before_ns), after_ns=_later_ns(gpu.counter.after_ns)
        ),
    )


def _later_ns(times_ns: Any) -> Any:
    return np.asarray(times_ns) + AHEAD_NS


def run_in_waves(path: Path, results: Results) -> RunView:
    """One good attempt in whose steps a sequence ends before another has its first token."""
    view = traced_run(path, results, num_gpus=1, attempts=1)
    (rank,) = view.records[0].ranks
    waves = dataclasses.replace(rank, steps=tuple(map(_in_waves, rank.steps)))
    return dataclasses.replace(view, records=(dataclasses.replace(view.records[0], ranks=(waves,)),))


def _in_waves(step: Step) -> Step:
    part_ns = (step.end_ns - step.start_ns) // 10
    requests = tuple(
        RequestTimes(
            arrival_ns=step.start_ns,
            first_token_ns=step.start_ns + first * part_ns,
            last_token_ns=step.start_ns + last * part_ns,
            prompt_tokens=10,
            output_tokens=4,
        )
        for first, last in ((1, 5), (6, 10))
    )
    return dataclasses.replace(step, requests=requests)
