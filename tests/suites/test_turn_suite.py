"""The shipped suite of turns: every profile plans on machines of its kind."""

from __future__ import annotations

import pytest

from pybench.model.workloads.turn import Turn
from tests.suites.test_generate_suites import plan_of

PROFILES = ("rtx4090", "a100", "h100", "h200")


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
