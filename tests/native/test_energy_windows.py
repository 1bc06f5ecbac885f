"""The claims of tests/core about energy, tried on more windows."""

from __future__ import annotations

from tests.power.test_energy_physics import (
    test_bounds_hold_on_other_boards,
    test_errors_and_bounds,
    test_phases_of_steps_between_two_anchors,
)
from tests.power.test_in_step import test_bounds_of_trainings_are_narrow_and_hold
from tests.power.test_ripple import (
    test_bounds_hold_where_the_period_does_not,
    test_bounds_hold_with_other_samples,
)

__all__ = [
    "test_bounds_hold_on_other_boards",
    "test_bounds_hold_where_the_period_does_not",
    "test_bounds_hold_with_other_samples",
    "test_bounds_of_trainings_are_narrow_and_hold",
    "test_errors_and_bounds",
    "test_phases_of_steps_between_two_anchors",
]
