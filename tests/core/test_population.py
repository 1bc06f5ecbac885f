"""Rows from runs of several hosts, and how often a healthy host is below them."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy  # loads its parts when they are used

from pybench.core.good_run import GoodRun
from pybench.core.population import Population, chance_below, population_of, tolerance_factor
from pybench.core.verdict import judge_ratio, row_statistics
from pybench.model.errors import UsageError
from pybench.model.suite import ExpectedRow
from pybench.model.verdict import Expected
from pybench.model.workloads.node import Matmul
from tests.api import good_run
from tests.build import Build
from tests.builders import H200
from tests.core import test_good_run as of_one_run
from tests.golden_sentences import sentences_of

SENTENCES = sentences_of("core.population")

GPU = "GPU-{:08d}-0000-0000-0000-000000000000"


def runs_of(build: Build, *tflops: tuple[int, float]) -> list[GoodRun]:
    """Runs of hosts with these numbers: a matmul of the given TFLOP/s, with two attempts that differ by 0.2 %."""
    made: list[GoodRun] = []
    for host, figure in tflops:
        run = of_one_run.MeasuredRun(build, flops=(figure * 0.999e12, figure * 1.001e12))
        gpus = (dataclasses.replace(H200, uuid=GPU.format(host)),)
        name = f"r{len(made)}"
        manifest = dataclasses.replace(
            run.manifest, run_id=name, machine=dataclasses.replace(run.manifest.machine, gpus=gpus)
        )
        made.append(good_run(manifest, run.records))
    return made


def matmul_row(population: Population) -> ExpectedRow:
    return next(row for row in population.table.rows if row.metric == "matmul_flops_per_s")


@pytest.mark.parametrize("num", [2, 3, 5, 12, 60])
def test_the_factor_is_that_of_the_noncentral_t(num: int) -> None:
    """Quantile of scipy: t' of 95 %, n - 1 degrees of freedom, noncentrality z sqrt(n), over sqrt(n)."""
    exact = scipy.stats.nct.ppf(0.95, num - 1, scipy.stats.norm.ppf(0.95) * math.sqrt(num)) / math.sqrt(num)
    assert tolerance_factor(num) == pytest.approx(exact, rel=2e-3)


def test_a_tolerance_limit_covers_healthy_hosts() -> None:
    """Of 20,000 tables from five hosts, 95 % have a limit that 95 % of hosts reach; a new one is below in 1.0 %."""
    draws = np.random.default_rng(3).normal(size=(20_000, 5))
    factor = tolerance_factor(5)
    limits = draws.mean(axis=1) - factor * draws.std(axis=1, ddof=1)
    share = 1 - scipy.stats.norm.cdf(limits)
    assert np.mean(share >= 0.95) == pytest.approx(0.95, abs=0.006)
    assert chance_below(factor, 5) == pytest.approx(np.mean(1 - share), rel=0.05)


def test_three_hosts_make_a_population(build: Build) -> None:
    """100, 102 and 104 TFLOP/s: their sd of logarithms by the factor of three hosts. The note counts both rows."""
    population = population_of(runs_of(build, (1, 100.0), (2, 102.0), (3, 104.0)), "mine")
    row = matmul_row(population)
    logs = np.log([100.0, 102.0, 104.0])
    assert row.value == pytest.approx(math.exp(logs.mean()) * 1e12, rel=1e-5)
    assert row.tolerance == pytest.approx(-math.expm1(-tolerance_factor(3) * logs.std(ddof=1)), rel=1e-4)
    assert (row.hosts, row.runs, population.num_hosts) == (3, 3, 3)
    chance = chance_below(tolerance_factor(3), 3)
    assert population.false_fail_fraction == pytest.approx(chance)
    assert population.note == SENTENCES["three_hosts_make_a_population"]


def test_hosts_are_told_apart_by_their_gpus(build: Build) -> None:
    """Three runs of two hosts are provisional. The limit is the least of the three runs' own limits."""
    population = population_of(runs_of(build, (1, 100.0), (1, 100.2), (2, 104.0)), "mine", "k")
    (row,) = population.table.rows
    alone = matmul_row(population_of(runs_of(build, (1, 100.0)), "mine", "k"))
    assert (row.hosts, row.runs) == (2, 3)
    assert row.limits[0] == pytest.approx(alone.limits[0], rel=1e-6)
    assert population.note == SENTENCES["hosts_are_told_apart_by_their_gpus"]


def test_several_runs_of_a_host_add_their_own_spread(build: Build) -> None:
    """Two runs of each of three equal hosts, 4 % between runs: means are equal, yet one run may be 2 % off."""
    figures = [(host, value) for host in (1, 2, 3) for value in (100.0, 104.0)]
    row = matmul_row(population_of(runs_of(build, *figures), "mine"))
    sd = math.log(1.04) / math.sqrt(2) * math.sqrt(0.5)
    assert row.tolerance == pytest.approx(-math.expm1(-tolerance_factor(3) * sd), rel=1e-3)


def test_hosts_of_different_health_have_no_row(build: Build) -> None:
    """One of three at two thirds of the others: a limit by them would pass nearly anything."""
    with pytest.raises(UsageError, match=r"differs so widely between 3 hosts .* half .* leave out the runs"):
        population_of(runs_of(build, (1, 100.0), (2, 101.0), (3, 66.0)), "mine", "k")


def test_runs_of_different_settings_are_refused(build: Build) -> None:
    first, second = runs_of(build, (1, 100.0), (2, 100.0))
    points = tuple(
        dataclasses.replace(point, settings=dataclasses.replace(point.settings, m=128))
        if isinstance(point.settings, Matmul)
        else point
        for point in second.manifest.plan.points
    )
    plan = dataclasses.replace(second.manifest.plan, points=points)
    other = dataclasses.replace(second, manifest=dataclasses.replace(second.manifest, plan=plan))
    with pytest.raises(UsageError, match=r"r0 and r1: square\[gpus=1\] has different settings"):
        population_of([first, other], "mine")


def test_a_run_that_is_given_twice_is_refused(build: Build) -> None:
    """It would count as two runs of its host."""
    (run,) = runs_of(build, (1, 100.0))
    with pytest.raises(UsageError, match=r"^r0 is given twice; a table counts each run once"):
        population_of([run, run], "mine")


def test_a_provisional_row_judges_and_says_so(build: Build) -> None:
    """The same verdict with one host as with four, and a note."""
    (run,) = runs_of(build, (1, 100.0))
    one, two = (point for point in run.manifest.plan.points if point.benchmark == "decode")
    evidence = row_statistics(run.measurements, "output_tokens_per_s", [two], [one])
    words = []
    for hosts in (1, 4):
        limit = Expected(minimum=1.5, maximum=None, source="", table="t", hosts=hosts)
        verdict, reason, _, _ = judge_ratio(evidence, limit, 2.0, more=True)
        assert verdict == "pass"
        words.append("provisional row of 1 host" in reason)
    assert words == [True, False]
