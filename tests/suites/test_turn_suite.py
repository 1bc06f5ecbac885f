"""The shipped suite of turns: every profile plans on machines of its kind."""

from __future__ import annotations

import pytest

from pybench.model.workloads.train import Train
from pybench.model.workloads.turn import Turn
from tests.suites.test_generate_suites import plan_of

PROFILES = ("rtx4090", "a100", "h100", "h200")
# Where training differs without another step's work.
_FREE = ("learning_rate", "grad_accum", "seed")


def test_two_cores_take_turns_in_every_topology() -> None:
    """With torch's own engine, and nothing refused."""
    plan = plan_of("turn_taking", "cpu", 2)
    assert plan.skips == plan.left_out == ()
    settings = [point.settings for point in plan.points if isinstance(point.settings, Turn)]
    assert {one.topology for one in settings} == {"shared", "decoupled", "full"}
    assert {one.handover for one in settings} == {"direct", "ipc", "file"}
    assert {one.sleep_level for one in settings} == {0, 1, 2}
    assert {one.backend for one in settings} == {"torch"}


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("num_gpus", [1, 2, 4, 8])
def test_every_point_that_fits_is_planned(profile: str, num_gpus: int) -> None:
    """None is refused for its settings, whatever the number of GPUs."""
    plan = plan_of("turn_taking", profile, num_gpus)
    assert plan.points
    assert plan.skips == ()


@pytest.mark.parametrize("profile", ["cpu", *PROFILES])
def test_the_work_of_a_turn_is_measured_alone(profile: str) -> None:
    """What ``direct`` generates and trains, in every profile: ``pybench explain`` holds the turn against it."""
    settings = {point.benchmark: point.settings for point in plan_of("turn_taking", profile, 2).points}
    turn, generating, training = (settings[name] for name in ("direct", "generating", "training"))
    assert isinstance(turn, Turn)
    assert isinstance(training, Train)
    assert generating == turn.generation
    assert training.num_passes == turn.training.num_passes
    own, of_turn = training.to_json(), turn.training.to_json()
    assert {name for name in own if own[name] != of_turn[name]} <= set(_FREE)
