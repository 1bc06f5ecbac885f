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
from pybench.model.health import GpuConditions
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.suite import Plan, Point, Suite
from pybench.model.wire import Work
from pybench.model.workloads.collective import Collective
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.memory_bandwidth import MemoryBandwidth
from pybench.model.workloads.node import NodeSettings
from pybench.model.workloads.peer_copy import PeerCopy
from pybench.model.workloads.train import Train
from pybench.report.explanation import render

_MIB = 2**20


class Runs:
    """A node's run with round figures, and runs of a model on it."""

    def __init__(self, build: Any, second: dict[str, float] | None = None) -> None:
        """``second`` are figures of the second GPU, which else does what the first one does."""
        self.build = build
        self.node_points: list[Point] = []
        self.node_records: list[Record] = []
        self._node(Matmul(backend="torch", gpus=2), {"matmul_flops_per_s": 660e12}, second)
        self._node(Matmul(backend="torch", gpus=1), {"matmul_flops_per_s": 700e12})
        self._node(Matmul(backend="torch", gpus=2, precision="float32"), {"matmul_flops_per_s": 50e12})
        self._node(MemoryBandwidth(backend="torch", gpus=2), {"memory_bytes_per_s": 4.2e12}, second)
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
        records = [record for point, t in times for record in self.measured(point, t)]
        return self.explain_records(records, times, **manifest)

    def explain_records(self, records: list[Record], times: list[tuple[Point, float]], **manifest: Any) -> Explanation:
        return explain(
            self.manifest(tuple(point for point, _ in times), **manifest), records, self.node, self.node_records
        )

    def measured(self, point: Point, time_s: float, first_gpu: int = 0) -> list[Record]:
        """Two attempts; copies of a generation tell of their own samples."""
        settings = point.settings
        copies = settings.data_parallel if isinstance(settings, Generate) else 1
        samples = settings.batch_size // copies if isinstance(settings, Generate) else 2 * point.num_gpus
        steps = self.build.steps([time_s, time_s], Work(samples=samples))
        ranks = tuple(
            self.build.rank(steps, rank + first_gpu, replica=rank if copies > 1 else 0)
            for rank in range(point.num_gpus)
        )
        return [self.build.record(point, ranks, n) for n in (1, 2)]

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
            for rank, values in enumerate((first, {**first, **(second or {})})[: settings.gpus])
        )
        self.node_points.append(point)
        self.node_records += [self.build.record(point, ranks, n) for n in (1, 2)]


@pytest.fixture
def runs(build: Any) -> Runs:
    return Runs(build, second={"matmul_flops_per_s": 540e12})


def test_figures_of_a_node(runs: Runs) -> None:
    """The slowest GPU's, in the model's own type; a curve needs two sizes."""
    figures = node_figures(runs.node, runs.node_records, "bfloat16")
    assert (figures.matmul_flops_per_s, figures.memory_bytes_per_s) == (540e12, 4.2e12)
    assert figures.peer_bytes_per_s == 350e9
    assert {name: gpu.matmul_flops_per_s for name, gpu in figures.gpus.items()} == {"rank 0": 660e12, "rank 1": 540e12}
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
    others, alone = explanation.notes
    assert others == "decode: the node's run did not measure every GPU; the slowest that it measured stands for each"
    assert alone == f"decode: extrapolated from measured speedups alone: {four.reason}"


def test_another_machine_is_noted(runs: Runs, build: Any) -> None:
    """Its figures may still tell something."""
    explanation = runs.explain([(build.generate(1), 0.16), (build.generate(2), 0.1)], fingerprint="g")
    assert "may not hold" in explanation.notes[0]


def test_groups_without_one_gpu_are_not_extrapolated(runs: Runs, build: Any) -> None:
    """A law starts from one; nor are those with two speedups for a number of GPUs, or with one number."""
    explanation = runs.explain([(build.generate(2), 0.1), (build.generate(4), 0.08)])
    assert explanation.extrapolations == ()
    assert "decode: not extrapolated: the laws start from one GPU, and the fewest here are 2" in explanation.notes
    explanation = runs.explain(
        [(build.train(1), 0.1), (build.train(2), 0.1), (_split(build, tensor_parallel=2), 0.1), (build.generate(2), 1)]
    )
    assert explanation.extrapolations == ()
    assert explanation.notes == (
        "fit: not extrapolated: 2 points have 2 GPUs, and a law has one speedup for each number",
        "decode: not extrapolated: measured on 2 GPUs only",
    )


def test_mixed_degrees_are_extrapolated(runs: Runs, build: Any) -> None:
    """Two copies of two parts of every layer, from one GPU: more GPUs are more copies."""
    mixed = _split(build, tensor_parallel=2, data_parallel=2)
    explanation = runs.explain([(_split(build), 0.1), (mixed, 0.11)])
    assert [found.num_gpus for found in explanation.extrapolations] == [16, 64, 256, 1024]
    (point,) = explanation.points
    assert point.reason is None
    assert not any("extrapolated" in note for note in explanation.notes)


def test_counts_that_do_not_divide_are_named(runs: Runs, build: Any) -> None:
    """Three GPUs make neither 16 nor 64."""
    explanation = runs.explain([(build.train(1), 0.1), (build.train(3), 0.1)])
    assert explanation.extrapolations == ()
    assert "fit: not extrapolated to 16, 64, 256, 1024 GPUs: no multiples of 3" in explanation.notes


def _split(build: Any, tensor_parallel: int = 1, data_parallel: int = 1) -> Point:
    """A point of the benchmark ``fit`` that splits its model by FSDP's mesh."""
    degrees = {"tensor_parallel": tensor_parallel, "data_parallel": data_parallel}
    point: Point = build.train(1)
    assert isinstance(point.settings, Train)
    settings = dataclasses.replace(
        point.settings, strategy="fsdp", tensor_parallel=tensor_parallel, data_parallel=data_parallel
    )
    return dataclasses.replace(point, id=point_id("fit", {**degrees}), axes={**degrees}, settings=settings)


@pytest.mark.parametrize("figure", ["matmul_flops_per_s", "memory_bytes_per_s"])
def test_a_slow_gpu_costs_predicted_speedup(build: Any, figure: str) -> None:
    """The baseline ran on the other one: what the slow one costs is imbalance, and nothing else changes."""
    lame = {"matmul_flops_per_s": 660e12, "memory_bytes_per_s": 4.2e12}
    lame[figure] *= 0.5
    times = [(build.generate(1), 0.16), (build.generate(2), 0.1)]
    (even,) = Runs(build, second=None).explain(times).points
    (slowed,) = Runs(build, second=lame).explain(times).points
    assert even.parts is not None
    assert slowed.parts is not None
    assert even.predicted_speedup is not None
    assert slowed.predicted_speedup is not None
    assert slowed.predicted_speedup < even.predicted_speedup
    assert (even.parts["imbalance"], slowed.parts["imbalance"] > 0) == (0.0, True)
    assert sum(slowed.parts.values()) == pytest.approx(slowed.shortfall_s)
    own = ("compute", "memory", "communication", "software")
    assert {name: slowed.parts[name] for name in own} == {name: even.parts[name] for name in own}


def test_a_baseline_on_the_slow_gpu_is_predicted_with_its_figures(build: Any) -> None:
    """Two GPUs are no faster than it, so nothing is imbalance."""
    runs = Runs(build, second={"matmul_flops_per_s": 330e12, "memory_bytes_per_s": 2.1e12})
    one, two = build.generate(1), build.generate(2)
    records = [*runs.measured(one, 0.32, first_gpu=1), *runs.measured(two, 0.2)]
    (point,) = runs.explain_records(records, [(one, 0.32), (two, 0.2)]).points
    assert point.parts is not None
    assert point.parts["imbalance"] == 0.0


def test_copies_in_waves_share_them_evenly(runs: Runs, build: Any) -> None:
    """Copies tell of their own samples; two have half as many waves of two sequences each: linear."""
    one, two = (_copies(build, count, batch_size=8, max_num_seqs=2) for count in (1, 2))
    (point,) = runs.explain([(one, 0.16), (two, 0.081)]).points
    assert point.measured_speedup == pytest.approx(0.16 / 0.081)
    assert point.predicted_speedup == pytest.approx(2.0)


def _copies(build: Any, count: int, **settings: Any) -> Point:
    """Copies that share nothing but the samples."""
    point: Point = build.generate(1, **settings)
    assert isinstance(point.settings, Generate)
    own = dataclasses.replace(point.settings, data_parallel=count)
    return dataclasses.replace(point, id=f"decode[data_parallel={count}]", axes={"data_parallel": count}, settings=own)


def test_boards_at_their_power_limit_are_named(runs: Runs, build: Any) -> None:
    """Beside the shortfall: GPU 1 of two, none of the baseline; a GPU of no rank is left aside."""
    one, two = build.train(1), build.train(2)
    records = [
        *(_with_gpus(record, (0x0, 0x4, 0x4)) for record in runs.measured(one, 0.1)),
        *(_with_gpus(record, (0x1, 0x5, 0x4)) for record in runs.measured(two, 0.11)),
    ]
    explanation = runs.explain_records(records, [(one, 0.1), (two, 0.11)])
    (point,) = explanation.points
    assert (point.power_limited, point.baseline_power_limited) == (("GPU 1",), ())
    text = render(explanation, width=240)
    assert "baseline at power limit" in text
    assert "GPU 1" in text


def test_power_limits_that_nobody_read_are_unknown(runs: Runs, build: Any) -> None:
    """Not none."""
    explanation = runs.explain([(build.train(1), 0.1), (build.train(2), 0.11)])
    (point,) = explanation.points
    assert (point.power_limited, point.baseline_power_limited) == (None, None)
    assert "unknown" in render(explanation, width=240)


def _with_gpus(record: Record, reasons: tuple[int, ...]) -> Record:
    """With a UUID for each rank, and the clock event reasons of every GPU of the machine."""
    ranks = tuple(
        dataclasses.replace(rank, header=dataclasses.replace(rank.header, device_uuid=f"GPU-{place}"))
        for place, rank in enumerate(record.ranks)
    )
    conditions = tuple(
        GpuConditions(uuid=f"GPU-{place}", index=place, clock_event_reasons=own) for place, own in enumerate(reasons)
    )
    return dataclasses.replace(record, ranks=ranks, conditions=conditions)


def test_one_number_of_gpus_explains_nothing(runs: Runs, build: Any) -> None:
    """Nor does a run of no model."""
    with pytest.raises(UsageError, match="no model on two numbers of GPUs"):
        runs.explain([(build.generate(2), 0.1)])
    with pytest.raises(UsageError, match="no model on two numbers of GPUs"):
        explain(runs.node, runs.node_records, runs.node, runs.node_records)


def test_unmeasured_points_are_left_aside(runs: Runs, build: Any) -> None:
    """The others are explained."""
    one, two, four = build.generate(1), build.generate(2), build.generate(4)
    records = [*runs.measured(one, 0.16), *runs.measured(two, 0.1), build.failed(four)]
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


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"concurrency": 2}, "concurrency"),
        ({"request_rate_per_s": 1.0}, "request_rate_per_s"),
        ({"length_spread_fraction": 0.5}, "length_spread_fraction"),
        ({"quantization": "fp8"}, "quantization"),
        ({"engine_args": {"kv_cache_dtype": "fp8"}}, "engine_args"),
        ({"max_num_seqs": 2}, "max_num_seqs"),
    ],
)
def test_generation_that_the_model_does_not_know(runs: Runs, build: Any, settings: dict[str, Any], named: str) -> None:
    """The setting is named, and the speedup that was measured stays."""
    times = [(build.generate(1, **settings), 0.16), (build.generate(2, **settings), 0.1)]
    explanation = runs.explain(times)
    (point,) = explanation.points
    assert point.reason is not None
    assert named in point.reason
    assert point.predicted_s is None
    assert point.measured_speedup == pytest.approx(1.6)
    assert f"not predicted: {point.reason}" in render(explanation, width=300)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"strategy": "deepspeed", "zero_stage": 2}, "strategy deepspeed"),
        ({"lora_rank": 8}, "LoRA"),
        ({"activation_checkpointing": "selective"}, "selective"),
        ({"strategy": "fsdp", "mixed_precision": "bfloat16"}, "mixed_precision"),
        ({"strategy": "fsdp", "cpu_offload": True}, "cpu_offload"),
        ({"strategy": "fsdp", "reshard_after_forward": False}, "reshard_after_forward"),
        ({"strategy": "fsdp", "async_tensor_parallel": True}, "async_tensor_parallel"),
        ({"strategy": "fsdp", "grad_accum": 2}, "grad_accum of fsdp"),
        ({"strategy": "pipeline_parallel", "grad_accum": 2}, "grad_accum of pipeline_parallel"),
        ({"strategy": "pipeline_parallel", "stages_per_rank": 2}, "stages_per_rank"),
        ({"batch_size_per_gpu": "auto", "grad_accum": "auto", "global_batch_size": 8}, "found by trying"),
    ],
)
def test_training_that_the_model_does_not_know(runs: Runs, build: Any, settings: dict[str, Any], named: str) -> None:
    """Refused by name."""
    figures = node_figures(runs.node, runs.node_records, "bfloat16")
    fit = build.train(2)
    asked = dataclasses.replace(fit, settings=dataclasses.replace(fit.settings, **settings))
    with pytest.raises(UnmeasuredError, match=named):
        predicted_step(figures, asked, 4)


def test_a_pipeline_has_a_microbatch_for_each_stage_by_default(runs: Runs, build: Any) -> None:
    """As the worker does: two stages take 3/4 of the work each, not all of it."""
    figures = node_figures(runs.node, runs.node_records, "bfloat16")
    point = build.train(1)
    unset, two = (
        dataclasses.replace(
            point,
            settings=dataclasses.replace(
                point.settings, strategy="pipeline_parallel", pipeline_parallel=2, microbatches=parts
            ),
        )
        for parts in (None, 2)
    )
    assert predicted_step(figures, unset, 4) == predicted_step(figures, two, 4)
    whole_s = predicted_step(figures, point, 4).compute_s
    assert predicted_step(figures, unset, 4).compute_s == pytest.approx(0.75 * whole_s)


def test_passes_are_as_many_as_the_samples_need(runs: Runs, build: Any) -> None:
    """Set, they stay; ``auto`` follows the samples of a rank. More passes hide less of DDP's sums."""
    figures = node_figures(runs.node, runs.node_records, "bfloat16")
    settings = build.train(2).settings
    auto = dataclasses.replace(settings, global_batch_size=64, grad_accum="auto")
    set_ = dataclasses.replace(settings, grad_accum=16)
    one = dataclasses.replace(settings, batch_size_per_gpu=32)
    many, same, single = (
        predicted_step(figures, dataclasses.replace(build.train(2), settings=own), 64) for own in (auto, set_, one)
    )
    assert many == same
    assert many.communication_s > single.communication_s


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
    assert "worst size off by" in text
    assert "unexplained" in text


def test_the_report_without_predictions(runs: Runs, build: Any) -> None:
    """Tables without rows are left out."""
    text = render(runs.explain([(build.generate(2), 0.1), (build.generate(4), 0.08)]), width=200)
    assert "Measured and predicted" in text
    assert "Prediction, not measured" not in text
    assert "and why" not in text
