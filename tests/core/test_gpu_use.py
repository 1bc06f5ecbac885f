"""Memory and utilisation of each GPU, over attempts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core.measurements import Measurements
from pybench.core.summary import summarize
from pybench.model.record import GpuConditions, GpuUse
from pybench.model.suite import Plan
from pybench.model.wire import Metric, Work
from tests.build import Build


def used(build: Build, memory: float, busy: float | None, uuids: tuple[str, ...]) -> Any:
    """A record of one rank on these GPUs, whose sampler saw GPU-0."""
    point = build.train(1)
    rank = build.rank(build.steps([1.0], Work(samples=2)), memory=memory, told={"device_memory_used_bytes": memory + 2})
    rank = dataclasses.replace(rank, header=dataclasses.replace(rank.header, device_uuids=uuids))
    conditions = (GpuConditions(uuid="GPU-0", index=0, utilization_fraction=busy),)
    return dataclasses.replace(build.record(point, (rank,)), conditions=conditions)


def gpus_of(build: Build, *records: Any) -> tuple[GpuUse, ...]:
    (result,) = summarize(Measurements.of(Plan(points=(build.train(1),), skips=()), records))
    return result.gpus


def test_the_most_memory_and_the_mean_utilisation(build: Build) -> None:
    """The maximum over two attempts; values without a report are unknown."""
    found = gpus_of(build, used(build, 5.0, 0.9, ("GPU-0",)), used(build, 7.0, 0.7, ("GPU-0",)))
    assert found == (
        GpuUse(uuid="GPU-0", peak_memory_bytes=7.0, device_memory_used_bytes=9.0, utilization_fraction=0.8),
    )


def test_a_rank_of_several_gpus_reports_none_of_them(build: Build) -> None:
    """Memory of each GPU is unknown then; the sampler's values stay."""
    found = gpus_of(build, used(build, 5.0, 0.5, ("GPU-0", "GPU-1")))
    assert found == (GpuUse(uuid="GPU-0", utilization_fraction=0.5),)
    assert gpus_of(build, used(build, 5.0, None, ("GPU-0", "GPU-1"))) == ()


def test_layers_on_each_gpu_of_a_rank(build: Build) -> None:
    """By the rank's own numbers; a GPU that it does not have holds none."""
    record = used(build, 5.0, None, ("GPU-0", "GPU-1"))
    told = {"gpu_0_layers": 20.0, "gpu_1_layers": 12.0, "gpu_2_layers": 3.0}
    metrics = tuple(Metric(name=name, value=value, unit="") for name, value in told.items())
    rank = dataclasses.replace(record.ranks[0], metrics=metrics)
    found = gpus_of(build, dataclasses.replace(record, ranks=(rank,)))
    assert found == (GpuUse(uuid="GPU-0", num_layers=20), GpuUse(uuid="GPU-1", num_layers=12))


@pytest.mark.parametrize(("layers", "flagged"), [((32, 0), True), ((20, 12), False), ((), False)])
def test_a_gpu_without_layers_is_flagged(build: Build, layers: tuple[int, ...], flagged: bool) -> None:
    """As ``device_map = "sequential"`` leaves it where the model fits the first one."""
    record = used(build, 5.0, None, ("GPU-0", "GPU-1"))
    metrics = tuple(Metric(name=f"gpu_{gpu}_layers", value=float(count), unit="") for gpu, count in enumerate(layers))
    rank = dataclasses.replace(record.ranks[0], metrics=metrics)
    placed = dataclasses.replace(record, ranks=(rank,))
    (result,) = summarize(Measurements.of(Plan(points=(build.train(1),), skips=()), [placed]))
    assert ("gpu_without_layers" in result.flags) is flagged
