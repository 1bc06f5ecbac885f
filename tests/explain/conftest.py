"""A node with round figures, and runs of a model on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pybench.core.measurements import Measurements
from pybench.explain.explanation import explain
from pybench.explain.node import MeasuredNode
from pybench.explain.values import Explanation
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.suite import Effort, Plan, Point
from pybench.model.wire import Work
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Collective, Matmul, MemoryBandwidth, PeerCopy
from pybench.model.workloads.settings import ModelSettings, NodeSettings
from tests.build import Build
from tests.builders import MANIFEST

_MIB = 2**20


class Runs:
    """A node's run with round figures, and runs of a model on it."""

    def __init__(self, build: Build, second: dict[str, float] | None = None) -> None:
        """``second``: figures of the second GPU; default: those of the first."""
        self.build = build
        self.node_points: list[Point] = []
        self.node_records: list[Record] = []
        self.add(Matmul(backend="torch", gpus=2), {"matmul_flops_per_s": 660e12}, second)
        self.add(Matmul(backend="torch", gpus=1), {"matmul_flops_per_s": 700e12})
        self.add(Matmul(backend="torch", gpus=2, precision="float32"), {"matmul_flops_per_s": 50e12})
        self.add(MemoryBandwidth(backend="torch", gpus=2), {"memory_bytes_per_s": 4.2e12}, second)
        self.add(PeerCopy(backend="torch", gpus=2), {"peer_copy_bytes_per_s": 350e9})
        for size in (_MIB, 512 * _MIB):
            self.add(Collective(backend="torch", gpus=2, message_bytes=size), {"collective_s": 15e-6 + size / 300e9})
        self.add(Collective(backend="torch", gpus=2, operation="broadcast"), {"collective_s": 1e-3})

    @property
    def node(self) -> Manifest:
        return self.manifest(tuple(self.node_points), run_id="node")

    @property
    def node_measurements(self) -> Measurements:
        return Measurements.of(self.node.plan, self.node_records)

    @property
    def measured_node(self) -> MeasuredNode:
        return MeasuredNode.of_run(self.node, self.node_measurements)

    def manifest(self, points: tuple[Point, ...], run_id: str = "run", **changes: Any) -> Manifest:
        plan = Plan(points=points, skips=())
        usual = {"run_id": run_id, "machine": self.build.machine(), "fingerprint": "f"}
        return dataclasses.replace(MANIFEST, plan=plan, **{**usual, **changes})

    def explain(self, times: list[tuple[Point, float]], **manifest: Any) -> Explanation:
        records = [record for point, t in times for record in self.measured(point, t)]
        return self.explain_records(records, times, **manifest)

    def explain_records(self, records: list[Record], times: list[tuple[Point, float]], **manifest: Any) -> Explanation:
        run = self.manifest(tuple(point for point, _ in times), **manifest)
        return explain(run, Measurements.of(run.plan, records), self.measured_node)

    def measured(self, point: Point, time_s: float, first_gpu: int = 0) -> list[Record]:
        """Two attempts. Copies of a generation report their own samples, a training its batch, or 2 for each GPU."""
        settings = point.settings
        copies = settings.data_parallel if isinstance(settings, Generate) else 1
        assert isinstance(settings, ModelSettings)
        batch = getattr(settings, "batch_size", getattr(settings, "global_batch_size", None))
        samples = (batch or 2 * point.num_gpus) // copies
        steps = self.build.steps([time_s, time_s], Work(samples=samples))
        ranks = tuple(
            self.build.rank(steps, rank + first_gpu, replica=rank if copies > 1 else 0)
            for rank in range(point.num_gpus)
        )
        return [self.build.record(point, ranks, n) for n in (1, 2)]

    def add(self, settings: NodeSettings, first: dict[str, float], second: dict[str, float] | None = None) -> None:
        name = f"{settings.workload}{len(self.node_points)}"
        point: Point = Point(
            id=name,
            benchmark=name,
            axes={},
            settings=settings,
            effort=Effort(),
            architecture=None,
        )
        ranks = tuple(
            self.build.rank(
                tuple(dataclasses.replace(step, values=values) for step in self.build.steps([1.0, 1.0], Work())), rank
            )
            for rank, values in enumerate((first, {**first, **(second or {})})[: settings.gpus])
        )
        self.node_points.append(point)
        self.node_records += [self.build.record(point, ranks, n) for n in (1, 2)]


@pytest.fixture
def runs(build: Build) -> Runs:
    return Runs(build, second={"matmul_flops_per_s": 540e12})


@pytest.fixture
def node(build: Build) -> Callable[..., Runs]:
    """Makes runs on a node whose second GPU has other figures."""
    return partial(Runs, build)
