"""A run beside what a node's figures predict."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.compute.comm_model.figures import UnmeasuredError
from pybench.compute.plan import point_id
from pybench.judge.explanation import explain
from pybench.judge.node_figures import node_figures
from pybench.judge.predicted_step import predicted_step
from pybench.model.effort import Effort
from pybench.model.errors import UsageError
from pybench.model.explanation import Explanation
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.suite import Plan, Point, Suite
from pybench.model.wire import Work
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.node import NodeSettings
from pybench.model.workloads.peer_copy import PeerCopy
from pybench.model.workloads.train import Train
from pybench.report.explanation import render

_MIB = 2**20


class Runs:
    """A node's run with round figures, and runs of a model on it."""

    def __init__(self, build: Any) -> None:
        self.build = build
        self.node_points: list[Point] = []
        self.node_records: list[Record] = []
        self._node(Matmul(backend="torch", gpus=2), {"matmul_flops_per_s": 660e12}, {"matmul_flops_per_s": 540e12})
        self._node(Matmul(backend="torch", gpus=2, precision="float32"), {"matmul_flops_per_s": 50e12})
        self._node(MemoryBandwidth(backend="torch", gpus=2), {"memory_bytes_per_s": 4.2e12})
        self._node(PeerCopy(backend="torch", gpus=2), {"peer_copy_bytes_per_s": 350e9})
        for size in (_MIB, 512 * _MIB):
            self._node(Collective(backend="torch", gpus=2, message_bytes=size), {"collective_s": 15e-6 + size / 300e9})
        self._node(Collective(backend="torch", gpus=2, operation="broadcast"), {"collective_s": 1e-3})

    @property
    def node(self) -> Manifest:
        return self.manifest(tuple(self.node_points), run_id="node")

    def manifest(self, points: tuple[Point, ...], run_id: str = "run", fingerprint: str = "f") -> Manifest:
        return Manifest(
            run_id=run_id,
            created_utc="",
            pybench_version="0",
            suite=Suite(name="s", description="", benchmarks=()),
            plan=Plan(points=points, skips=()),
            device="cuda",
            machine=self.build.machine(),
            fingerprint=fingerprint,
            tables={},
            worker_sha256="",
            engine="none",
        )

    def explain(self, times: list[tuple[Point, float]], **manifest: Any) -> Explanation:
        records = [record for point, t in times for record in self._measured(point, t)]
        return explain(
            self.manifest(tuple(point for point, _ in times), **manifest), records, self.node, self.node_records
        )

    def _measured(self, point: Point, time_s: float) -> list[Record]:
        samples = 4 if point.benchmark == "decode" else 2 * point.num_gpus
        steps = self.build.steps([time_s, time_s], Work(samples=samples))
        return [self.build.record(point, (self.build.rank(steps),) * point.num_gpus, n) for n in (1, 2)]

    def _node(self, settings: NodeSettings, first: dict[str, float], second: dict[str, float] | None = None) -> None:
        name = f"{settings.workload}{len(self.node_points)}"
        point: Point = Point(
            id=name,
            benchmark=name,
            axes={},
            settings=settings,  # type: ignore[arg-type]
            effort=Effort(),
            architecture=None,
        )
        ranks = tuple(
            self.build.rank(
                tuple(dataclasses.replace(step, values=values) for step in self.build.steps([1.0, 1.0], Work())), rank
            )
            for rank, values in enumerate((first, second or first))
        )
        self.node_points.append(point)
        self.node_records += [self.build.record(point, ranks, n) for n in (1, 2)]


@pytest.fixture
def runs(build: Any) -> Runs:
    return Runs(build)


def test_figures_of_a_node(runs: Runs) -> None:
    """The slowest GPU's, in the model's own type; a curve needs two sizes."""
    figures = node_figures(runs.node, runs.node_records, "bfloat16")
    assert (figures.matmul_flops_per_s, figures.memory_bytes_per_s) == (540e12, 4.2e12)
    assert figures.peer_bytes_per_s == 350e9
    assert figures.imbalance_fraction == pytest.approx(600 / 540 - 1)
    assert list(figures.collectives) == [("all_reduce", 2)]
    assert figures.collectives["all_reduce", 2].alpha_s == pytest.approx(15e-6)


@pytest.mark.parametrize(("left_out", "lacks"), [(Matmul, "matmul in bfloat16"), (MemoryBandwidth, "memory_bandwidth")])
def test_a_run_without_the_basic_figures(runs: Runs, left_out: type, lacks: str) -> None:
    """Says what to run."""
    runs.node_points = [point for point in runs.node_points if not isinstance(point.settings, left_out)]
    with pytest.raises(UsageError, match=f"measured no {lacks}; give a run of node_check"):
        node_figures(runs.node, runs.node_records, "bfloat16")


def test_generation_is_explained(runs: Runs, build: Any) -> None:
    """Two GPUs: 1.6 times measured; the parts add up to what is longer than half."""
    explanation = runs.explain([(build.generate(1), 0.16), (build.generate(2), 0.1)])
    (point,) = explanation.points
    assert point.measured_speedup == pytest.approx(1.6)
    assert point.predicted_speedup is not None
    assert 1 < point.predicted_speedup < 2
    assert point.shortfall_s == pytest.approx(0.1 - 0.08)
    assert point.parts is not None
    assert sum(point.parts.values()) == pytest.approx(point.shortfall_s)
    assert point.parts["communication"] > 0
    assert point.parts["software"] > 0
    assert [found.num_gpus for found in explanation.extrapolations] == [16, 64, 256, 1024]
    assert all(found.low <= found.speedup <= found.high for found in explanation.extrapolations)
    assert explanation.notes == ()


def test_training_is_explained(runs: Runs, build: Any) -> None:
    """Weak scaling: twice the samples in 1.1 times the time is 1.82 times the work."""
    (point,) = runs.explain([(build.train(1), 0.1), (build.train(2), 0.11)]).points
    assert point.measured_speedup == pytest.approx(2 / 1.1)
    assert point.shortfall_s == pytest.approx(0.01)
    assert point.parts is not None
    assert sum(point.parts.values()) == pytest.approx(0.01)


def test_what_was_not_measured_is_told(runs: Runs, build: Any) -> None:
    """Four GPUs, of which the node's run has no curve: measured speedups alone are extrapolated."""
    explanation = runs.explain([(build.generate(1), 0.16), (build.generate(2), 0.1), (build.generate(4), 0.08)])
    _, four = explanation.points
    assert four.reason == "the node's run has no size curve of all_reduce on 4 GPUs"
    assert (four.predicted_s, four.predicted_speedup, four.parts) == (None, None, None)
    assert [found.num_gpus for found in explanation.extrapolations] == [16, 64, 256, 1024]


def test_another_machine_is_noted(runs: Runs, build: Any) -> None:
    """Its figures may still tell something."""
    explanation = runs.explain([(build.generate(1), 0.16), (build.generate(2), 0.1)], fingerprint="g")
    assert "may not hold" in explanation.notes[0]


def test_groups_without_one_gpu_are_not_extrapolated(runs: Runs, build: Any) -> None:
    """A law starts from one."""
    assert runs.explain([(build.generate(2), 0.1), (build.generate(4), 0.08)]).extrapolations == ()


def test_one_number_of_gpus_explains_nothing(runs: Runs, build: Any) -> None:
    """Nor does a run of no model."""
    with pytest.raises(UsageError, match="no model on two numbers of GPUs"):
        runs.explain([(build.generate(2), 0.1)])
    with pytest.raises(UsageError, match="no model on two numbers of GPUs"):
        explain(runs.node, runs.node_records, runs.node, runs.node_records)


def test_unmeasured_points_are_left_aside(runs: Runs, build: Any) -> None:
    """The others are explained."""
    one, two, four = build.generate(1), build.generate(2), build.generate(4)
    records = [*runs._measured(one, 0.16), *runs._measured(two, 0.1), build.failed(four)]
    found = explain(runs.manifest((one, two, four)), records, runs.node, runs.node_records)
    assert [point.num_gpus for point in found.points] == [2]


def test_what_the_model_does_not_know(runs: Runs, build: Any) -> None:
    """Says so: another strategy, context parallelism, no model at all."""
    figures = node_figures(runs.node, runs.node_records, "bfloat16")
    fit = build.train(2)
    other = dataclasses.replace(fit, settings=dataclasses.replace(fit.settings, strategy="zero"))
    with pytest.raises(UnmeasuredError, match="knows no strategy zero"):
        predicted_step(figures, other, 4)
    ring = dataclasses.replace(fit, settings=dataclasses.replace(fit.settings, context_parallel=2))
    with pytest.raises(UnmeasuredError, match="knows no context_parallel"):
        predicted_step(figures, ring, 4)
    with pytest.raises(UnmeasuredError, match="knows no matmul"):
        predicted_step(figures, runs.node_points[0], 1)


def test_a_grown_degree_is_the_one_that_the_point_raises(runs: Runs, build: Any) -> None:
    """Eight times two copies are sixteen: as many samples each as an eighth of the grown step."""
    point = Point(
        id=point_id("fit", {}),
        benchmark="fit",
        axes={},
        settings=Train(backend="torch", model="m", global_batch_size=16, sequence_tokens=8, data_parallel=2),
        effort=Effort(),
        architecture=build.architecture,
    )
    figures = node_figures(runs.node, runs.node_records, "bfloat16")
    curve = figures.collectives["all_reduce", 2]
    wider = dataclasses.replace(figures, collectives={("all_reduce", 2): curve, ("all_reduce", 16): curve})
    assert predicted_step(wider, point, 128, grown=8).compute_s == pytest.approx(
        predicted_step(wider, point, 16).compute_s
    )


def test_the_report_says_what_is_prediction(runs: Runs, build: Any) -> None:
    """Every table, with the runs' names; a point without a prediction shows why."""
    explanation = runs.explain(
        [(build.generate(1), 0.16), (build.generate(2), 0.1), (build.generate(4), 0.08)], fingerprint="g"
    )
    text = render(explanation, width=200)
    assert text.startswith("run, explained by node\nnote: the two runs")
    assert "Prediction, not measured" in text
    assert "no size curve of all_reduce on 4 GPUs" in text
    assert "1.600x" in text
    assert "unexplained" in text


def test_the_report_without_predictions(runs: Runs, build: Any) -> None:
    """Tables without rows are left out."""
    text = render(runs.explain([(build.generate(2), 0.1), (build.generate(4), 0.08)]), width=200)
    assert "Measured and predicted" in text
    assert "Prediction, not measured" not in text
    assert "and why" not in text
