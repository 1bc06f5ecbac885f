"""Training's metrics, by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pybench.core.flops import model_flops_per_token, num_parameters
from pybench.core.measurements import Measurements, metric_samples
from pybench.core.summary import summarize
from pybench.model.suite import Plan
from pybench.model.wire import Metric, Work
from pybench.model.workloads.evaluate import Evaluate
from pybench.model.workloads.train import Train
from tests.build import Build
from tests.builders import with_settings


def samples(build: Build, point: Any, seconds: list[float], device_name: str = "NVIDIA H200", told: Any = None) -> Any:
    """Two ranks, 4 samples of 100 tokens a step; every rank tells ``told`` of itself, the second one more."""
    steps = build.steps(seconds, Work(samples=4))
    ranks = []
    for number in range(2):
        rank = build.rank(steps, number)
        header = dataclasses.replace(rank.header, device_name=device_name)
        extra = tuple(Metric(name=name, value=value + number, unit="") for name, value in (told or {}).items())
        ranks.append(dataclasses.replace(rank, header=header, metrics=extra))
    return metric_samples(point, [build.record(point, tuple(ranks))])


def test_utilisation_by_hand(build: Build) -> None:
    """400 tokens in 2 s on two H200: 100 tokens/s each, times the model's operations, over 989.5 TFLOP/s."""
    point = build.train(2)
    found = samples(build, point, [2.0])
    assert point.shape is not None
    assert isinstance(point.settings, Train)
    needed = 100 * model_flops_per_token(point.shape, point.settings)
    assert found["flops_per_s_per_gpu"] == ((needed,),)
    assert found["mfu_fraction"] == found["hfu_fraction"] == ((needed / 989.5e12,),)


def test_recomputed_layers_count_as_work_of_the_hardware_only(build: Build) -> None:
    """HFU above MFU."""
    point = build.train(2)
    again = with_settings(point, activation_checkpointing="full")
    found, before = samples(build, again, [2.0]), samples(build, point, [2.0])
    assert found["mfu_fraction"] == before["mfu_fraction"]
    assert found["hfu_fraction"][0][0] > found["mfu_fraction"][0][0]


def test_utilisation_of_an_unknown_device_is_unknown(build: Build) -> None:
    """No peak, no fraction of it; operations a second are known all the same."""
    found = samples(build, build.train(2), [2.0], "AVX512")
    assert "mfu_fraction" not in found
    assert "hfu_fraction" not in found
    assert "flops_per_s_per_gpu" in found


def test_a_point_without_a_model_has_no_utilisation(build: Build) -> None:
    """Rates are left."""
    point = dataclasses.replace(build.train(2), architecture=None)
    found = samples(build, point, [2.0])
    assert "flops_per_s_per_gpu" not in found
    assert found["tokens_per_s"] == ((200.0,),)


def test_percentiles_lie_between_the_nearest_steps(build: Build) -> None:
    """Of ten steps of 1 to 10 s: half, 9/10 and 99/100 of the way from the first to the last."""
    found = samples(build, build.train(2), [float(n) for n in range(10, 0, -1)])
    assert [found[f"step_p{n}_s"][0][0] for n in (50, 90, 99)] == pytest.approx([5.5, 9.1, 9.91])


@pytest.mark.parametrize("name", ["exposed_communication_fraction", "straggler_gap_fraction", "batch_size_per_gpu"])
def test_what_ranks_tell_is_the_worst_of_them(build: Build, name: str) -> None:
    """The point's is the largest."""
    assert samples(build, build.train(2), [1.0], told={name: 0.5})[name] == ((1.5,),)


def test_the_share_of_evaluations(build: Build) -> None:
    """8 s on the slowest rank, every 4 steps of 2 s: half of the time. Without a number of steps there is none."""
    every = with_settings(build.train(2), evaluation_every_steps=4)
    found = samples(build, every, [1.0, 2.0, 3.0], told={"evaluation_s": 7.0})
    assert found["evaluation_s"] == ((8.0,),)
    assert found["evaluation_overhead_fraction"] == ((0.5,),)
    assert "evaluation_overhead_fraction" not in samples(build, build.train(2), [1.0], told={"evaluation_s": 7.0})


def test_the_rank_that_waits_longest_for_its_samples_counts(build: Build) -> None:
    """0.5 s of a step of 2 s: a quarter, though the first rank waited for 0.1 s; beyond 5 % it is a caution."""
    point = build.train(2)
    ranks = tuple(
        build.rank(
            tuple(
                dataclasses.replace(step, values={"input_wait_s": wait_s})
                for step in build.steps([2.0], Work(samples=4))
            ),
            number,
        )
        for number, wait_s in enumerate((0.1, 0.5))
    )
    measured = Measurements.of(Plan(points=(point,), skips=()), [build.record(point, ranks)])
    (result,) = summarize(measured)
    assert result.metrics["input_wait_s"].value == 0.5
    assert result.metrics["input_wait_fraction"].value == 0.25
    assert "input_bound" in result.flags


def test_evaluation_by_hand(build: Build) -> None:
    """4 samples in 2 s, 60 J in two steps."""
    settings = Evaluate(
        backend="torch", model="m", method="loss", batch_size=4, prompt_tokens=6, output_tokens=4, data_parallel=2
    )
    point = dataclasses.replace(build.train(2), settings=settings)
    rank = build.rank(build.steps([2.0, 2.0], Work(samples=4)))
    found = metric_samples(point, [build.record(point, (rank,), energy=build.energy([40.0, 20.0], 4.0))])
    assert found["samples_per_s"] == ((2.0, 2.0),)
    assert found["energy_j_per_sample"] == ((7.5,),)
    assert settings.longest_sequence_tokens == 10


def test_model_flops_and_flops_of_a_joule(build: Build) -> None:
    """By hand: 2 samples of 100 tokens in a step; two steps over 40 + 20 J."""
    point = build.train(1)
    assert point.shape is not None
    assert isinstance(point.settings, Train)
    rank = build.rank(build.steps([1.0, 1.0], Work(samples=2)))
    found = metric_samples(point, [build.record(point, (rank,), energy=build.energy([40.0, 20.0], 2.0))])
    one_step = 200 * model_flops_per_token(point.shape, point.settings)
    assert found["model_flops"] == ((one_step, one_step),)
    assert found["model_flops_per_j"][0][0] == pytest.approx(2 * one_step / 60)


@pytest.mark.parametrize(
    ("joules", "apart"), [((40.0, 20.0), 20 / 30), ((30.0, 30.0), 0.0), ((60.0,), None), ((40.0, None), None)]
)
def test_how_far_energies_lie_apart(build: Build, joules: tuple[float | None, ...], apart: float | None) -> None:
    """40 and 20 J around a mean of 30; nothing with one GPU, or with an unknown one."""
    point = build.train(1)
    rank = build.rank(build.steps([1.0, 1.0], Work(samples=2)))
    found = metric_samples(point, [build.record(point, (rank,), energy=build.energy(list(joules), 2.0))])
    values = found.get("energy_imbalance_fraction")
    assert ([list(own) for own in values] if values else None) == (None if apart is None else [pytest.approx([apart])])


def test_stages_that_wait_by_hand(build: Build) -> None:
    """Two ranks that compute for 1 and 1.5 s of 2 s: 37.5 % of the time lost, 0.5 of a mean of 1.25 s apart."""
    point = build.train(2)
    steps = [
        tuple(dataclasses.replace(step, values={"stage_busy_s": busy}) for step in build.steps([2.0], Work(samples=4)))
        for busy in (1.0, 1.5)
    ]
    record = build.record(point, tuple(build.rank(given, number) for number, given in enumerate(steps)))
    found = metric_samples(point, [record])
    assert found["stage_busy_s"] == ((1.25,),)
    assert found["stage_idle_fraction"][0][0] == pytest.approx(0.375)
    assert found["stage_imbalance_fraction"][0][0] == pytest.approx(0.4)
    alone = metric_samples(point, [build.record(point, (build.rank(steps[0]),))])
    assert "stage_idle_fraction" not in alone, "one rank waits for no other"


@pytest.mark.parametrize(
    ("strategy", "busy_s", "flagged"),
    [("pipeline_parallel", 1.5, True), ("pipeline_parallel", 1.7, False), ("layer_split", 1.0, False)],
)
def test_stages_that_wait_for_long_are_flagged(build: Build, strategy: str, busy_s: float, *, flagged: bool) -> None:
    """25 and 15 % of steps of 2 s; a layer split waits by its method."""
    point = with_settings(build.train(), strategy=strategy, pipeline_parallel=2)
    steps = tuple(
        dataclasses.replace(step, values={"stage_busy_s": busy_s}) for step in build.steps([2.0], Work(samples=4))
    )
    record = build.record(point, tuple(build.rank(steps, number) for number in range(2)))
    (result,) = summarize(Measurements.of(Plan(points=(point,), skips=()), [record]))
    assert ("stages_wait" in result.flags) is flagged


@pytest.mark.parametrize(("num_ranks", "exposed", "flagged"), [(2, None, True), (2, 0.1, False), (1, None, False)])
def test_control_steps_that_found_no_memory_are_flagged(
    build: Build, num_ranks: int, exposed: float | None, *, flagged: bool
) -> None:
    """Two ranks need them to measure communication; one rank communicates nothing."""
    point = with_settings(build.train(num_ranks), control_steps=3)
    metrics = () if exposed is None else (Metric(name="exposed_communication_fraction", value=exposed, unit=""),)
    steps = build.steps([2.0], Work(samples=4))
    ranks = tuple(dataclasses.replace(build.rank(steps, number), metrics=metrics) for number in range(num_ranks))
    (result,) = summarize(Measurements.of(Plan(points=(point,), skips=()), [build.record(point, ranks)]))
    assert ("no_control_steps" in result.flags) is flagged
    (result,) = summarize(Measurements.of(Plan(points=(point,), skips=()), []))
    assert "no_control_steps" not in result.flags, "nothing was measured"


def test_adapters_have_a_share_of_all_parameters(build: Build) -> None:
    """Over the model's weights and the adapters'; full training has no such share."""
    point = build.train(2)
    assert point.shape is not None
    told = {"trained_parameters": 20e6}
    whole = samples(build, point, [2.0], told=told)
    assert whole["trained_parameters"] == ((20e6 + 1,),)
    assert "trained_fraction" not in whole
    found = samples(build, with_settings(point, lora_rank=8), [2.0], told=told)
    share = (20e6 + 1) / (num_parameters(point.shape) + 20e6 + 1)
    assert found["trained_fraction"][0][0] == pytest.approx(share)
