"""The filter over the counter's values, against the textbook's, one hypothesis after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from pybench import _energy
from pybench.power.bridge import STEP_SPREAD

# Known values of a GPU, as in csrc/counter_filter.cpp.
GAIN_SPREAD, MOST_GAIN_COST, FREEDOM, OUTLIER = 1e-3, 12.0, 3.0, 9.0
COUNTED, OUTSIDE, GAIN, IN_STEP = range(4)


@dataclass(frozen=True)
class Steps:
    """From each value to the next: joules ``spent`` by the series, joules ``taken`` within windows, variances."""

    spent_j: np.ndarray
    taken_j: np.ndarray
    spent_j2: np.ndarray
    taken_j2: np.ndarray
    in_step_j: np.ndarray


Part = tuple[np.ndarray, np.ndarray, Steps]


def filtered(parts: list[Part], belief: np.ndarray, spread: float, *beyond: np.ndarray) -> tuple[np.ndarray, ...]:
    """By the extension: logarithm of the weight, joules within the windows, their variance, and the misfit."""
    columns = [(values_j, value_j2, *vars(steps).values()) for values_j, value_j2, steps in parts]
    outcome: tuple[np.ndarray, ...] = _energy.filtered(columns, belief, spread, STEP_SPREAD, *beyond)
    return outcome


def textbook(parts: list[Part], belief: float, further_spread: float, beyond: tuple[float, float]) -> list[float]:
    """Of one hypothesis: by matrices, as Kalman has them."""
    mean, covariance = np.zeros(4), np.diag([0.0, 0.0, GAIN_SPREAD**2 + further_spread**2, STEP_SPREAD**2])
    log_weight, misfit, num_values = np.log(belief), FREEDOM, 0
    for number, (values_j, value_j2, steps) in enumerate(parts):
        all_j, taken_j, in_step_j = max(steps.spent_j.sum(), 1e-9), steps.taken_j.sum(), steps.in_step_j.sum()
        if number == 0:
            doubt_j2 = steps.spent_j2.sum() + value_j2[0] + value_j2[-1] + (STEP_SPREAD * in_step_j) ** 2
            off = (values_j[-1] - values_j[0]) / all_j - 1
            doubt2 = covariance[GAIN, GAIN] + doubt_j2 / all_j**2
            if off**2 > OUTLIER * doubt2:
                log_weight -= min(off**2 / doubt2 / 2, MOST_GAIN_COST)
                mean[GAIN], covariance[GAIN, GAIN] = off, doubt2
            mean[:GAIN], covariance[:GAIN, :GAIN] = values_j[0], value_j2[0]
        else:
            before = parts[number - 1][2]
            outside_j = (before.spent_j - before.taken_j).sum()
            move = np.eye(4)
            move[COUNTED, COUNTED], move[OUTSIDE, GAIN], move[OUTSIDE, IN_STEP] = 0, outside_j, before.in_step_j.sum()
            mean, covariance = move @ mean, move @ covariance @ move.T
            mean[OUTSIDE] += outside_j
            mean[COUNTED], covariance[COUNTED, COUNTED] = values_j[0], value_j2[0]
        for step in range(len(values_j) - 1):
            outside_j2 = steps.spent_j2[step] - steps.taken_j2[step]
            covariance[:GAIN, :GAIN] += [[steps.spent_j2[step], outside_j2], [outside_j2, outside_j2]]
            spent_j = steps.spent_j[: step + 1].sum()
            row = np.array([1, 0, spent_j, steps.in_step_j[: step + 1].sum()])
            off_j, expected_j2 = values_j[step + 1] - spent_j - row @ mean, row @ covariance @ row + value_j2[step + 1]
            log_weight -= np.log(expected_j2) / 2
            misfit += min(off_j**2 / expected_j2, OUTLIER)
            pull = covariance @ row / (expected_j2 + (off_j**2 if off_j**2 > OUTLIER * expected_j2 else 0))
            mean = mean + pull * off_j
            covariance = covariance - np.outer(pull, row @ covariance)
        num_values += len(values_j)
    within_j = taken_j + beyond[0]
    row = np.array([1, -1, within_j, 0])
    freedom = FREEDOM + num_values - 1
    variance_j2 = row @ covariance @ row + beyond[1]
    return [log_weight - freedom / 2 * np.log(misfit), row @ mean + within_j, variance_j2, misfit / freedom]


def random_part(rng: np.random.Generator, num: int, gain: float, *, in_step: bool) -> Part:
    """Values of four hypotheses, one value an outlier."""
    spent_j = rng.uniform(20, 60, (num - 1, 4))
    taken_j = spent_j * rng.uniform(0, 1, (num - 1, 4))
    steps = Steps(
        spent_j,
        taken_j,
        spent_j2=rng.uniform(0.1, 0.3, (num - 1, 4)),
        taken_j2=rng.uniform(0, 0.1, (num - 1, 4)),
        in_step_j=rng.uniform(0, 0.5, (num - 1, 4)) * in_step,
    )
    values_j = np.concatenate((np.zeros((1, 4)), np.cumsum(spent_j, axis=0))) * gain + rng.normal(0, 0.7, (num, 4))
    values_j[num // 2] += np.array([0, 0, 0, 9.0])
    return values_j, rng.uniform(0.05, 0.2, (num, 4)), steps


def one(part: Part, hypothesis: int) -> Part:
    values_j, value_j2, steps = part
    columns = {name: column[:, hypothesis] for name, column in vars(steps).items()}
    return values_j[:, hypothesis], value_j2[:, hypothesis], replace(steps, **columns)


@pytest.mark.parametrize("num_values", [(2,), (9,), (5, 7), (1, 3)])
@pytest.mark.parametrize("gain", [1.0, 1.2])
@pytest.mark.parametrize("in_step", [False, True])
def test_every_hypothesis_is_filtered_as_the_textbook_has_it(
    num_values: tuple[int, ...], gain: float, in_step: bool
) -> None:
    """Along one curve and two, with a gain far off, and where the load keeps step with the counter."""
    rng = np.random.default_rng(sum(num_values))
    parts = [random_part(rng, num, gain, in_step=in_step) for num in num_values]
    belief, beyond_j, beyond_j2 = rng.uniform(0.1, 1, 4), rng.uniform(0, 9, 4), rng.uniform(0, 1, 4)
    outcome = filtered(parts, belief, 0.02, beyond_j, beyond_j2)
    for at in range(4):
        expected = textbook(
            [one(part, at) for part in parts], float(belief[at]), 0.02, (float(beyond_j[at]), float(beyond_j2[at]))
        )
        assert [column[at] for column in outcome] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_values_without_their_steps_are_refused() -> None:
    values_j, value_j2, steps = random_part(np.random.default_rng(0), 4, 1.0, in_step=False)
    beyond = np.zeros(4)
    with pytest.raises(ValueError, match="columns differ in length"):
        filtered([(values_j[:3], value_j2[:3], steps)], np.ones(4), 0.0, beyond, beyond)
    with pytest.raises(ValueError, match="no value"):
        filtered([(values_j[:0], value_j2[:0], steps)], np.ones(4), 0.0, beyond, beyond)
