"""Uncertainty of joules that more attempts do not remove: sensor gains, 2 % (sd) a board, and bounds of windows."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pybench.core.absolute import absolute_checks
from pybench.core.assemble import assemble
from pybench.core.good_run import GoodRun
from pybench.core.measurements import Measurements
from pybench.core.population import population_of
from pybench.core.summary import summarize
from pybench.core.verdict import BOARD_GAIN_SD, sensor_sd
from pybench.model.record import Energy, PhaseEnergy
from pybench.model.results import CheckResult
from pybench.model.suite import Benchmark, Effort, ExpectedTable, Limits, Plan, Point, Suite, TableFigure
from tests.api import suite_of
from tests.build import Build
from tests.builders import MANIFEST

_JOULES, _POWER, _RATE = "energy_j_per_output_token", "mean_power_w", "output_tokens_per_s"


def _measured(build: Build, *points: Point, bound: float | None = None) -> Measurements:
    """Six attempts at each, all the same: 40 tokens in 2 s, 20 J on every GPU, whose number is the point's degree.

    ``bound`` is how far the truth may lie off on every GPU, a fraction.
    """
    records = [
        record
        for point in points
        for record in build.measured(point, [[2.0]] * 6, energy=_energy(build, point.num_gpus, bound))
    ]
    return Measurements.of(Plan(points=points, skips=()), records)


def _energy(build: Build, num_gpus: int, bound: float | None) -> Energy:
    energy = build.energy([20.0] * num_gpus, 2.0)
    if bound is None:
        return energy
    low_j, high_j = 20.0 * (1 - bound), 20.0 * (1 + bound)
    gpus = tuple(dataclasses.replace(gpu, energy_low_j=low_j, energy_high_j=high_j) for gpu in energy.gpus)
    half = PhaseEnergy(name="decode", duration_s=1.0, energy_j=10.0, energy_low_j=low_j - 10, energy_high_j=high_j - 10)
    return dataclasses.replace(energy, gpus=gpus, phases=(half,))


def _suite(expectation: Limits | TableFigure) -> Suite:
    settings = {"backend": "torch", "model": "m"}
    decode = Benchmark(
        name="decode",
        workload="generate",
        settings=settings,
        axes={"tensor_parallel": (1,)},
        effort=Effort(),
        expectations=(expectation,),
    )
    return suite_of(decode)


def _check(build: Build, degree: int, limits: Limits, bound: float | None = None) -> CheckResult:
    measurements = _measured(build, build.generate(degree), bound=bound)
    (check,) = absolute_checks(_suite(limits), measurements, summarize(measurements), {}, build.machine())
    return check


def test_boards_of_both_sides_cancel(build: Build) -> None:
    """Four over one of them: the one weighs 1/4 - 1, three weigh 1/4. Figures without joules or watts have no gain."""
    one, four = build.generate(1), build.generate(4)
    measurements = _measured(build, one, four)
    assert sensor_sd(measurements, _JOULES, [one], [one]) == 0
    assert sensor_sd(measurements, _JOULES, [four], [one]) == pytest.approx(0.02 * math.sqrt(9 / 16 + 3 / 16))
    assert sensor_sd(measurements, _JOULES, [one]) == BOARD_GAIN_SD
    assert sensor_sd(measurements, _POWER, [four]) == pytest.approx(BOARD_GAIN_SD / 2)
    assert sensor_sd(measurements, _RATE, [one]) == 0


@pytest.mark.parametrize(
    ("degree", "beyond", "verdict"),
    [
        (1, 1.03, "inconclusive"),
        (1, 0.97, "inconclusive"),
        (1, 1.06, "pass"),
        (1, 0.94, "fail"),
        (4, 1.03, "pass"),
        (4, 0.97, "fail"),
    ],
)
def test_a_limit_in_joules_is_held_against_gains(build: Build, degree: int, beyond: float, verdict: str) -> None:
    """Attempts that agree to the last digit leave one board's 2 % open, and 1 % of four boards' mean."""
    joules_a_token = 20.0 * degree / 40
    check = _check(build, degree, Limits(metric=_JOULES, maximum=joules_a_token * beyond))
    assert check.verdict == verdict
    assert "with the uncertainty of power sensors" in check.reason
    assert ("more would not decide it (power sensors)" in check.reason) == (verdict == "inconclusive")


def test_what_the_sampling_leaves_open_counts_too(build: Build) -> None:
    """A bound of 12 % is 6.1 % (sd) on each side, whatever the boards have in common; of a phase, its windows' own."""
    one, four = build.generate(1), build.generate(4)
    measurements = _measured(build, one, four, bound=0.12)
    sampling = 0.12 / 1.959964
    assert sensor_sd(measurements, _JOULES, [one]) == pytest.approx(math.hypot(BOARD_GAIN_SD, sampling))
    assert sensor_sd(measurements, _JOULES, [one], [one]) == pytest.approx(sampling * math.sqrt(2))
    gains = 0.02 * math.sqrt(9 / 16 + 3 / 16)
    assert sensor_sd(measurements, _JOULES, [four], [one]) == pytest.approx(math.hypot(gains, sampling, sampling))
    decode = "decode_energy_j_per_output_token"
    assert sensor_sd(measurements, decode, [one]) == pytest.approx(math.hypot(BOARD_GAIN_SD, 2 * sampling))
    assert sensor_sd(measurements, _RATE, [one]) == 0


@pytest.mark.parametrize(("bound", "verdict"), [(None, "pass"), (0.01, "pass"), (0.12, "inconclusive")])
def test_a_limit_within_the_bound_is_open(build: Build, bound: float | None, verdict: str) -> None:
    """Four boards, 4 % below the limit: a sensor that sees a quarter of the time knows less than that."""
    check = _check(build, 4, Limits(metric=_JOULES, maximum=2.0 * 1.04), bound)
    assert check.verdict == verdict


def test_its_interval_has_the_gain_too(build: Build) -> None:
    """exp(+-1.96 * 0.02) about 0.5 J."""
    check = _check(build, 1, Limits(metric=_JOULES, maximum=0.6))
    assert "found 500 [480.8, 520] mJ/token" in check.reason


def test_a_limit_without_joules_is_not(build: Build) -> None:
    """20 tokens/s in every attempt are above 19.9."""
    check = _check(build, 1, Limits(metric=_RATE, minimum=19.9))
    assert check.verdict == "pass"
    assert "gains" not in check.reason


def test_a_table_from_a_run_passes_that_run(build: Build) -> None:
    """Its tolerance is for another machine's boards: 1.96 sqrt(2) 2 % of logarithms, on the side of more joules."""
    point = build.generate(1)
    measurements = _measured(build, point)
    manifest = dataclasses.replace(
        MANIFEST,
        suite=_suite(TableFigure(metric=_JOULES, table="t")),
        plan=measurements.plan,
        machine=build.machine(),
        tables={"t": ExpectedTable(name="t", description="", rows=())},
    )
    results = assemble(manifest, measurements)
    table = population_of([GoodRun(manifest=manifest, measurements=measurements, results=results)], "t").table
    assert table.rows[0].tolerance == pytest.approx(math.expm1(1.959964 * math.sqrt(2) * 0.02), rel=1e-6)
    judged = assemble(dataclasses.replace(manifest, tables={"t": table}), measurements)
    assert [check.verdict for check in judged.checks] == ["pass"]
