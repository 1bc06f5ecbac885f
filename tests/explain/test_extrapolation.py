"""Speedups on more GPUs than were measured: the laws, and groups without a prediction."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core.plan import point_id
from pybench.explain.explanation import amdahl
from pybench.model.suite import Point
from pybench.model.workloads.train import Train
from tests.build import Build
from tests.builders import with_settings
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("explain.extrapolation")


def test_groups_without_one_gpu_are_not_extrapolated(runs: Any, build: Build) -> None:
    """A law starts from one GPU, and has one speedup for each number of GPUs."""
    explanation = runs.explain([(build.generate(2), 0.1), (build.generate(4), 0.08)])
    assert explanation.extrapolations == ()
    assert "decode: not extrapolated: the laws start from one GPU, and the fewest here are 2" in explanation.notes
    explanation = runs.explain(
        [(build.train(1), 0.1), (build.train(2), 0.1), (_split(build, tensor_parallel=2), 0.1), (build.generate(2), 1)]
    )
    assert explanation.extrapolations == ()
    assert explanation.notes == (SENTENCES["groups_without_one_gpu_are_not"],)


def test_mixed_degrees_are_extrapolated(runs: Any, build: Build) -> None:
    """Two copies of two parts of every layer, from one GPU: more GPUs are more copies."""
    mixed = _split(build, tensor_parallel=2, data_parallel=2)
    explanation = runs.explain([(_split(build), 0.1), (mixed, 0.11)])
    assert [row.num_gpus for row in explanation.extrapolations] == [8, 16, 64, 256, 1024]
    (point,) = explanation.points
    assert point.reason is None
    assert not any("extrapolated" in note for note in explanation.notes)


def test_counts_that_do_not_divide_are_named(runs: Any, build: Build) -> None:
    """No count is a multiple of three."""
    explanation = runs.explain([(build.train(1), 0.1), (build.train(3), 0.1)])
    assert explanation.extrapolations == ()
    assert "fit: not extrapolated to 4, 8, 16, 64, 256, 1024 GPUs: no multiples of 3" in explanation.notes


def test_chunks_end_where_sequences_do_not_split(runs: Any, build: Build) -> None:
    """1024 tokens divide by 1024 ranks, 100 tokens not by 8."""
    long = [(with_settings(_of_chunks(build, count), sequence_tokens=1024), 0.1 / count) for count in (1, 2)]
    explanation = runs.explain(long)
    (point,) = explanation.points
    assert point.predicted_s is not None
    assert [row.num_gpus for row in explanation.extrapolations] == [4, 8, 16, 64, 256, 1024]
    explanation = runs.explain([(_of_chunks(build, 1), 0.1), (_of_chunks(build, 2), 0.06)])
    assert [row.num_gpus for row in explanation.extrapolations] == [4]
    refused = "fit: not extrapolated to 8, 16, 64, 256, 1024 GPUs: 100 tokens in a sequence can't be split over"
    assert any(note.startswith(refused) for note in explanation.notes)


def test_interleaved_stages_end_with_the_layers(runs: Any, build: Build) -> None:
    """Two stages a rank need two layers a rank."""
    degrees = {"pipeline_parallel": 2}
    turned = {"strategy": "pipeline_parallel", "schedule": "interleaved_1f1b", "microbatches": 2}
    alone, two = (with_settings(build.train(1), **turned, stages_per_rank=2, **given) for given in ({}, degrees))
    layers = build.architecture["num_hidden_layers"]
    explanation = runs.explain(
        [(alone, 0.1), (dataclasses.replace(two, id=point_id("fit", {**degrees}), axes={**degrees}), 0.06)]
    )
    assert [row.num_gpus for row in explanation.extrapolations] == [
        count for count in (4, 8, 16, 64, 256, 1024) if 2 * count <= layers
    ]
    assert any(f"{layers} layers of m are fewer than" in note for note in explanation.notes)


@pytest.mark.parametrize(
    ("batch", "counts", "reason"),
    [
        (
            {"batch_size_per_gpu": None, "grad_accum": 1},
            [4, 8],
            "16, 64, 256, 1024 GPUs: 8 samples in a step can't be split over data_parallel 16",
        ),
        (
            {"batch_size_per_gpu": 2, "grad_accum": "auto"},
            [4],
            "8, 16, 64, 256, 1024 GPUs: 8 samples in a step are no multiple of the 16 that all ranks take at once",
        ),
        (
            {"batch_size_per_gpu": None, "grad_accum": 2},
            [4],
            "8, 16, 64, 256, 1024 GPUs: 1 sample of a rank can't be split over grad_accum 2",
        ),
    ],
)
def test_a_shared_batch_ends_where_its_samples_do_not_split(
    runs: Any, build: Build, batch: dict[str, Any], counts: list[int], reason: str
) -> None:
    """Strong scaling: 8 samples are too few for 16 ranks; a rank splits its samples over its passes."""
    points = [(with_settings(build.train(count), global_batch_size=8, **batch), 0.1 / count) for count in (1, 2)]
    explanation = runs.explain(points)
    assert [row.num_gpus for row in explanation.extrapolations] == counts
    assert explanation.notes == (f"fit: not extrapolated to {reason}",)


def test_replicas_end_with_the_sequences(runs: Any, build: Build) -> None:
    """A fifth copy of the model would have no sequence."""
    points = [
        dataclasses.replace(
            with_settings(build.generate(1), data_parallel=count),
            id=f"decode[data_parallel={count}]",
            axes={"data_parallel": count},
        )
        for count in (1, 2)
    ]
    explanation = runs.explain([(point, 0.1 / point.num_gpus) for point in points])
    assert [row.num_gpus for row in explanation.extrapolations] == [4]
    refused = "decode: not extrapolated to 8, 16, 64, 256, 1024 GPUs: 4 samples in a step can't be split over"
    assert any(note.startswith(refused) for note in explanation.notes)


def _of_chunks(build: Build, degree: int) -> Point:
    """A point of the benchmark ``fit`` whose sequences are split over ``degree`` ranks."""
    degrees = {"context_parallel": degree}
    point = with_settings(build.train(1), strategy="context_parallel", **degrees)
    return dataclasses.replace(point, id=point_id("fit", {**degrees}), axes={**degrees})


def _split(build: Build, tensor_parallel: int = 1, data_parallel: int = 1) -> Point:
    """A point of the benchmark ``fit`` that splits its model by FSDP's mesh."""
    degrees = {"tensor_parallel": tensor_parallel, "data_parallel": data_parallel}
    point: Point = build.train(1)
    assert isinstance(point.settings, Train)
    settings = dataclasses.replace(
        point.settings, strategy="fsdp", tensor_parallel=tensor_parallel, data_parallel=data_parallel
    )
    return dataclasses.replace(point, id=point_id("fit", {**degrees}), axes={**degrees}, settings=settings)


def test_amdahls_fraction_is_recovered() -> None:
    """A tenth is serial."""
    measured = {n: n / (1 + 0.1 * (n - 1)) for n in (2, 4, 8)}
    assert amdahl(measured)(64) == pytest.approx(64 / (1 + 0.1 * 63))


def test_one_gpu_shows_no_law() -> None:
    """A fit needs a count above one."""
    with pytest.raises(ValueError, match="more than one GPU"):
        amdahl({1: 1.0})


def test_no_law_exceeds_the_number_of_gpus(runs: Any, build: Build) -> None:
    """Two GPUs with 2.1 times the throughput of one give at most 16 on 16."""
    explanation = runs.explain([(build.train(1), 0.1), (build.train(2), 0.1 / 1.05)])
    assert all(row.high <= row.num_gpus for row in explanation.extrapolations)
