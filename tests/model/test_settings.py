"""Derived properties of a point's settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pybench.model.workloads.generate import Generate
from pybench.model.workloads.registry import settings_from_json
from pybench.model.workloads.train import Train, fill_rounds

STRONG = Train(backend="torch", model="m", global_batch_size=8, sequence_tokens=4, data_parallel=4)
WEAK = replace(STRONG, global_batch_size=None, batch_size_per_gpu=8)


def test_degrees_multiply_to_gpus() -> None:
    """Every kind of parallelism takes its own."""
    point = Generate(
        backend="torch",
        model="m",
        batch_size=1,
        prompt_tokens=1,
        output_tokens=2,
        tensor_parallel=2,
        pipeline_parallel=3,
        data_parallel=5,
        context_parallel=7,
    )
    assert point.num_gpus == 210


def test_a_ranks_samples() -> None:
    """Strong scaling divides them, weak scaling does not; passes divide the one and multiply the other."""
    assert (STRONG.micro_batch_size, WEAK.micro_batch_size) == (2, 8)
    twice = [replace(settings, grad_accum=2) for settings in (STRONG, WEAK)]
    assert [(s.micro_batch_size, s.num_passes, s.effective_batch_size) for s in twice] == [(1, 2, 8), (8, 2, 64)]


def test_auto_passes_hold_the_effective_batch() -> None:
    """The global batch decides the number of passes; an auto batch size is unknown until a worker finds it."""
    both = replace(STRONG, batch_size_per_gpu=1, grad_accum="auto")
    assert (both.num_passes, both.effective_batch_size) == (2, 8)
    assert replace(both, batch_size_per_gpu="auto").finds_batch_size
    assert not both.finds_batch_size


@pytest.mark.parametrize(
    ("samples", "stages", "parts"),
    [(8, 2, 8), (16, 2, 8), (6, 4, 6), (9, 3, 9), (64, 4, 16), (2, 4, 4), (34, 4, 4), (4, 1, 1)],
)
def test_a_batch_comes_in_as_many_parts_as_divide_it_from_four_for_each_stage_down(
    samples: int, stages: int, parts: int
) -> None:
    """Where none does, in one for each, which the plan refuses. One stage and a layer split have one part."""
    pipeline = replace(
        STRONG, strategy="pipeline_parallel", data_parallel=1, global_batch_size=samples, pipeline_parallel=stages
    )
    assert pipeline.num_microbatches == parts
    assert replace(pipeline, microbatches=2).num_microbatches == 2
    assert replace(pipeline, strategy="layer_split").num_microbatches == 1


@pytest.mark.parametrize(("samples", "stages", "parts"), [(10, 2, 2), (10, 3, 5), (16, 5, 8), (28, 8, 14), (8, 2, 8)])
def test_a_batch_comes_in_as_many_parts_as_its_schedule_takes(samples: int, stages: int, parts: int) -> None:
    """Interleaved stages take the same number in each round: of 10 parts over 3 stages, none in 3 rounds."""
    pipeline = replace(
        STRONG,
        strategy="pipeline_parallel",
        schedule="interleaved_1f1b",
        stages_per_rank=2,
        data_parallel=1,
        global_batch_size=samples,
        pipeline_parallel=stages,
    )
    assert pipeline.num_microbatches == parts
    assert fill_rounds(parts, stages)


@pytest.mark.parametrize("settings", [STRONG, WEAK])
def test_settings_come_back_as_they_went(settings: Train) -> None:
    """The workload's name tells which they are."""
    assert settings.to_json()["workload"] == "train"
    assert settings_from_json(settings.to_json()) == settings


@pytest.mark.parametrize(
    ("values", "error"),
    [({}, KeyError), ({"workload": "sleep"}, KeyError), ({**STRONG.to_json(), "workload": "generate"}, TypeError)],
)
def test_other_values_are_refused(values: dict[str, object], error: type[Exception]) -> None:
    """One workload's fields are not another's."""
    with pytest.raises(error):
        settings_from_json(values)
