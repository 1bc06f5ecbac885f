"""A run against the prediction by a node's rates."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core.measurements import Measurements
from pybench.core.plan import point_id
from pybench.explain.explanation import explain
from pybench.explain.text import render
from pybench.model.errors import UsageError
from pybench.model.suite import Point
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.node import Collective
from tests.build import Build
from tests.builders import with_settings
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("explain.explanation")


def test_generation_is_explained(runs: Any, build: Build) -> None:
    """Two GPUs have 1.6 times the throughput; the parts add up to the time above half of the step."""
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
    assert explanation.notes == ()


def test_training_is_explained(runs: Any, build: Build) -> None:
    """Weak scaling: twice the samples in 1.1 times the time is 1.82 times the work."""
    (point,) = runs.explain([(build.train(1), 0.1), (build.train(2), 0.11)]).points
    assert point.measured_speedup == pytest.approx(2 / 1.1)
    assert point.shortfall_s == pytest.approx(0.01)
    assert point.parts is not None
    assert sum(point.parts.values()) == pytest.approx(0.01)


def test_a_point_without_a_curve_has_its_reason(runs: Any, build: Build) -> None:
    """The node's run has no curve of four GPUs."""
    explanation = runs.explain([(build.generate(1), 0.16), (build.generate(2), 0.1), (build.generate(4), 0.08)])
    _, four = explanation.points
    assert four.reason == SENTENCES["a_point_without_a_curve_has_its"]
    assert (four.predicted_s, four.predicted_speedup, four.parts) == (None, None, None)
    assert explanation.notes == (SENTENCES["a_point_without_a_curve_has_its_2"],)


def test_another_machine_is_noted(runs: Any, build: Build) -> None:
    """A note says that predictions may not hold."""
    explanation = runs.explain([(build.generate(1), 0.16), (build.generate(2), 0.1)], fingerprint="g")
    assert "may not hold" in explanation.notes[0]


@pytest.mark.parametrize("figure", ["matmul_flops_per_s", "memory_bytes_per_s"])
def test_a_slow_gpu_costs_predicted_speedup(node: Any, build: Build, figure: str) -> None:
    """The baseline ran on the other GPU: the cost of the slow one is imbalance, other parts stay."""
    lame = {"matmul_flops_per_s": 660e12, "memory_bytes_per_s": 4.2e12}
    lame[figure] *= 0.5
    times = [(build.generate(1), 0.16), (build.generate(2), 0.1)]
    (even,) = node(second=None).explain(times).points
    (slowed,) = node(second=lame).explain(times).points
    assert even.parts is not None
    assert slowed.parts is not None
    assert even.predicted_speedup is not None
    assert slowed.predicted_speedup is not None
    assert slowed.predicted_speedup < even.predicted_speedup
    assert (even.parts["imbalance"], slowed.parts["imbalance"] > 0) == (0.0, True)
    assert sum(slowed.parts.values()) == pytest.approx(slowed.shortfall_s)
    own = ("compute", "memory", "communication", "software")
    assert {name: slowed.parts[name] for name in own} == {name: even.parts[name] for name in own}


def test_a_baseline_on_the_slow_gpu_is_predicted_with_its_figures(node: Any, build: Build) -> None:
    """Both GPUs have the baseline's rates, so there is no imbalance."""
    runs = node(second={"matmul_flops_per_s": 330e12, "memory_bytes_per_s": 2.1e12})
    one, two = build.generate(1), build.generate(2)
    records = [*runs.measured(one, 0.32, first_gpu=1), *runs.measured(two, 0.2)]
    (point,) = runs.explain_records(records, [(one, 0.32), (two, 0.2)]).points
    assert point.parts is not None
    assert point.parts["imbalance"] == 0.0


def test_copies_in_waves_share_them_evenly(runs: Any, build: Build) -> None:
    """Two copies have half of the waves of two sequences each: linear."""
    one, two = (_copies(build, count, batch_size=8, max_num_seqs=2) for count in (1, 2))
    (point,) = runs.explain([(one, 0.16), (two, 0.081)]).points
    assert point.measured_speedup == pytest.approx(0.16 / 0.081)
    assert point.predicted_speedup == pytest.approx(2.0)


def _copies(build: Build, count: int, **settings: Any) -> Point:
    """Copies that share only the samples."""
    point: Point = build.generate(1, **settings)
    assert isinstance(point.settings, Generate)
    own = dataclasses.replace(point.settings, data_parallel=count)
    return dataclasses.replace(point, id=f"decode[data_parallel={count}]", axes={"data_parallel": count}, settings=own)


def test_a_lone_point_is_compared_with_the_nodes_rates(runs: Any, build: Build) -> None:
    """One GPU has no shortfall; the time of its counted work at those rates is shown."""
    explanation = runs.explain([(build.generate(1), 0.16), (build.train(1), 0.1)])
    decode, fit = explanation.baselines
    for base, measured_s in ((decode, 0.16), (fit, 0.1)):
        assert (base.num_gpus, base.measured_s, base.reason, base.bound) == (1, measured_s, None, None)
        assert base.parts is not None
        assert set(base.parts) == {"compute", "memory", "communication"}
        assert base.parts["communication"] == 0
        assert base.beyond_s == pytest.approx(measured_s - sum(base.parts.values()))
    assert (explanation.points, explanation.notes) == ((), ())


def test_points_share_the_time_beyond_the_baselines_prediction(runs: Any, build: Build) -> None:
    """More GPUs have that time too, or share it."""
    explanation = runs.explain([(build.generate(1), 0.16), (build.generate(2), 0.1)])
    (base,), (point,) = explanation.baselines, explanation.points
    assert base.point_id == point.baseline_id
    assert base.beyond_s is not None
    assert point.parts is not None
    assert point.parts["software"] == pytest.approx(base.beyond_s / 2)


def test_a_baseline_of_unknown_work_has_its_reason(runs: Any, build: Build) -> None:
    """The reason is printed once for all of its points."""
    same = [(with_settings(build.generate(count), concurrency=4), 0.1) for count in (1, 2)]
    explanation = runs.explain(same)
    (base,) = explanation.baselines
    assert (base.parts, base.beyond_s) == (None, None)
    text = render(explanation, {}, width=200)
    assert text.count("not predicted") == 1
    assert f"{base.point_id}, {explanation.points[0].point_id}: not predicted: " in text
    assert "Baselines" not in text


def test_a_run_of_no_model_explains_nothing(runs: Any) -> None:
    """A node check has no model."""
    with pytest.raises(UsageError, match="it measured no model; nothing to explain"):
        explain(runs.node, runs.node_measurements, runs.measured_node)


def test_unmeasured_points_are_skipped(runs: Any, build: Build) -> None:
    """The others are explained."""
    one, two, four = build.generate(1), build.generate(2), build.generate(4)
    records = [*runs.measured(one, 0.16), *runs.measured(two, 0.1), build.failed(four)]
    run = runs.manifest((one, two, four))
    found = explain(run, Measurements.of(run.plan, records), runs.measured_node)
    assert [point.num_gpus for point in found.points] == [2]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"concurrency": 2}, "concurrency"),
        ({"request_rate_per_s": 1.0}, "request_rate_per_s"),
        ({"length_spread_fraction": 0.5}, "length_spread_fraction"),
        ({"quantization": "fp8"}, "quantization"),
        ({"prefix_caching": True}, "prefix_caching"),
        ({"engine_args": {"kv_cache_dtype": "fp8"}}, "engine_args"),
        ({"max_num_seqs": 2}, "max_num_seqs"),
    ],
)
def test_generation_that_the_model_does_not_know(runs: Any, build: Build, settings: dict[str, Any], named: str) -> None:
    """The setting is named; the measured speedup is shown."""
    times = [(build.generate(1, **settings), 0.16), (build.generate(2, **settings), 0.1)]
    explanation = runs.explain(times)
    (point,) = explanation.points
    assert point.reason is not None
    assert named in point.reason
    assert point.predicted_s is None
    assert point.measured_speedup == pytest.approx(1.6)
    assert f"not predicted: {point.reason}" in render(explanation, {}, width=300)


def test_a_run_over_nodes_is_explained_by_their_collectives(runs: Any, build: Build) -> None:
    """All-reduces between two nodes take ten times as long as within one, and so does the prediction."""
    one, two = build.train(1), build.train(2)
    over_nodes = dataclasses.replace(with_settings(two, nodes=2), axes={"nodes": 2})
    for size in (2**20, 2**29):
        runs.add(Collective(backend="torch", gpus=2, nodes=2, message_bytes=size), {"collective_s": size / 30e9})
    (within,) = runs.explain([(one, 0.1), (two, 0.11)]).points
    explanation = runs.explain([(one, 0.1), (over_nodes, 0.2)])
    (over,) = explanation.points
    assert within.predicted_s is not None
    assert over.predicted_s is not None
    assert over.predicted_s > within.predicted_s
    assert over.parts is not None
    assert sum(over.parts.values()) == pytest.approx(over.shortfall_s)


@pytest.mark.parametrize(
    ("strategy", "degrees"),
    [("fsdp", {"tensor_parallel": 2, "data_parallel": 2}), ("context_parallel", {"context_parallel": 2})],
)
def test_split_layers_with_copies_and_split_sequences_are_predicted(
    runs: Any, build: Build, strategy: str, degrees: dict[str, Any]
) -> None:
    """Against one GPU with the same strategy."""
    alone = with_settings(build.train(1), strategy=strategy)
    split = dataclasses.replace(with_settings(alone, **degrees), id=point_id("fit", {**degrees}), axes={**degrees})
    (point,) = runs.explain([(alone, 0.1), (split, 0.11)]).points
    assert point.reason is None
    assert point.predicted_s is not None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "the node's run has no size curve of all_reduce on 2 GPUs over 2 nodes"),
        (
            {"strategy": "pipeline_parallel", "data_parallel": 1, "pipeline_parallel": 2},
            "the model knows no copy between nodes (pipeline_parallel)",
        ),
        (
            {"strategy": "fsdp", "tensor_parallel": 2},
            "over nodes the model knows one parallel degree (tensor_parallel, data_parallel here)",
        ),
    ],
)
def test_unknown_work_between_nodes_is_refused(runs: Any, build: Build, settings: dict[str, Any], reason: str) -> None:
    """No curve between the nodes, pipeline stages, and two degrees: each is named, and not predicted."""
    over_nodes = dataclasses.replace(with_settings(build.train(2), nodes=2, **settings), axes={"nodes": 2})
    (point,) = runs.explain([(build.train(1), 0.1), (over_nodes, 0.2)]).points
    assert (point.predicted_s, point.reason) == (None, reason)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("A", "(A: none -> 1)"),
        ("AB", "(A: none -> 1; B: none -> 1)"),
        ("ABC", "(A: none -> 1 and 2 more variables)"),
    ],
)
def test_of_many_variables_that_differ_one_is_shown(runs: Any, build: Build, names: str, words: str) -> None:
    """Environments of two machines differ as a whole."""
    found = runs.explain([(build.generate(1), 0.16)], environment=dict.fromkeys(names, "1"))
    assert any(f"had other software {words}" in note for note in found.notes)
