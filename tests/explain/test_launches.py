"""Where the CPU that launches kernels bounds decode."""

from __future__ import annotations

import pytest

from pybench.explain.predict import refuse_launch_bound
from pybench.explain.step_time import AlphaBeta, NodeRates, UnmeasuredError
from pybench.model.suite import Point
from pybench.model.workloads.node import LaunchLatency
from tests.build import Build
from tests.builders import with_settings
from tests.explain.conftest import Runs
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("explain.launches")

LAYERS = 32


def rates(launch_s: float | None) -> NodeRates:
    """Infinitely fast GPUs, and collectives of 1 ms: a round is 2 x 32 all-reduces and a gather, 65 ms."""
    collective = AlphaBeta(1e-3, 0.0)
    return NodeRates(
        matmul_flops_per_s=1e30,
        memory_bytes_per_s=1e30,
        launch_s=launch_s,
        collectives={("all_reduce", 2): collective, ("all_gather", 2): collective},
    )


def split(build: Build, backend: str = "transformers") -> Point:
    point = build.generate(2, backend=backend)
    assert point.shape is not None
    assert point.shape.layers == LAYERS
    return point


def test_launches_that_take_longer_than_the_gpus(build: Build) -> None:
    """40 launches a layer, 1280 of 60 us, take 76.8 ms; the GPUs need 65 ms."""
    with pytest.raises(UnmeasuredError) as caught:
        refuse_launch_bound(rates(60e-6), split(build), 4, 4)
    assert str(caught.value) == SENTENCES["launches_that_take_longer_than_the"]


@pytest.mark.parametrize("launch_s", [50e-6, None])
def test_launches_that_the_gpus_hide(build: Build, launch_s: float | None) -> None:
    """64 ms of 65 ms; a node's run without launches, or on CPUs, refuses nothing."""
    refuse_launch_bound(rates(launch_s), split(build), 4, 4)


def test_backends_that_replay_graphs_launch_once(build: Build) -> None:
    """However slow a launch."""
    refuse_launch_bound(rates(1.0), split(build, "torch"), 4, 4)


def test_replicas_with_the_baselines_samples_are_not_refused(build: Build) -> None:
    """Their rounds take as long as the baseline's; with half of the samples each they are refused."""
    alone = build.generate(1, backend="transformers")
    refuse_launch_bound(rates(1.0), alone, 4, 4)
    two = with_settings(alone, data_parallel=2)
    refuse_launch_bound(rates(1.0), two, 8, 4)
    with pytest.raises(UnmeasuredError, match="decode is CPU bound"):
        refuse_launch_bound(rates(1.0), two, 4, 4)


def test_an_explanation_gives_the_reason_instead_of_a_prediction(runs: Runs, build: Build) -> None:
    """The measured speedup is shown: 0.16 s and 0.2 s are 0.8."""
    runs.add(LaunchLatency(backend="torch", gpus=1), {"launch_s": 10e-6, "round_trip_s": 20e-6})
    one, two = (build.generate(degree, backend="transformers") for degree in (1, 2))
    explanation = runs.explain([(one, 0.16), (two, 0.2)])
    (point,), (base,) = explanation.points, explanation.baselines
    assert base.parts is not None
    assert (base.bound or "").startswith("decode is CPU bound: its 1280 launches or more take 12.8 ms a token")
    assert point.predicted_speedup is None
    assert point.measured_speedup == pytest.approx(0.8)
    assert (point.reason or "").startswith("decode is CPU bound: its 1280 launches or more take 12.8 ms a token")
