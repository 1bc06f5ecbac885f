"""A table of healthy nodes from good runs of several hosts.

A row's limit is a one-sided tolerance limit for a normal distribution of logarithms: with ``CONFIDENCE`` at least
``SHARE`` of healthy hosts reach it in one run (G. Hahn and W. Meeker, Statistical Intervals, section 4.4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist, fmean, variance

from pybench.core.good_run import MIN_TOLERANCE, GoodRun, rows_of_run
from pybench.core.measurements import grouped
from pybench.core.numbers import percent
from pybench.core.statistics.distributions import upper_tail
from pybench.model.errors import UsageError
from pybench.model.manifest import Manifest
from pybench.model.suite import LEAST_HOSTS, ExpectedRow, ExpectedTable
from pybench.model.text import plural
from pybench.model.workloads.registry import METRICS

SHARE = 0.95
CONFIDENCE = 0.95
_WIDTHS = 400
"""Steps of the integral over the sample standard deviation; the factor has four digits."""


@dataclass(frozen=True, kw_only=True)
class Population:
    """A table, and the chance that a healthy host's run is below a row of it, by row; ``None`` for provisional rows."""

    table: ExpectedTable
    num_hosts: int
    chances: tuple[float | None, ...]

    @property
    def false_fail_fraction(self) -> float | None:
        """Chance that a healthy host is below any row, if rows are independent; ``None`` where a row is provisional.

        It is a bound: a verdict of *fail* also needs an interval that is clear of the limit.
        """
        known = [chance for chance in self.chances if chance is not None]
        return 1 - math.prod(1 - chance for chance in known) if len(known) == len(self.chances) else None

    @property
    def note(self) -> str:
        """Hosts, and how seldom a healthy one is below a row."""
        hosts = plural(self.num_hosts, "host")
        chance = self.false_fail_fraction
        if chance is None:
            count = sum(known is None for known in self.chances)
            return f"{plural(count, 'row')} provisional: {hosts}; runs of {LEAST_HOSTS} hosts make a population"
        return f"{hosts}: a healthy host is below one of the rows in at most {percent(chance)} of its runs"


def population_of(runs: Sequence[GoodRun], name: str, only: str | None = None) -> Population:
    """Rows of all runs: equal keys make one row, with the number of its hosts and runs.

    Runs with a GPU in common are of one host. From three hosts on the limit is the tolerance limit, at least 2 % from
    the geometric mean; with fewer it is the least limit of the runs' own rows.

    Raises ``UsageError`` as :func:`~pybench.core.good_run.rows_of_run` does, for points of one name with different
    settings, and for a limit of half or twice the figure.
    """
    _refuse_runs(runs)
    hosts = _hosts([run.manifest for run in runs])
    rows = [(host, row) for host, run in zip(hosts, runs, strict=True) for row in rows_of_run(run, only)]
    made = [_row(of_key) for of_key in grouped((row.key, (host, row)) for host, row in rows).values()]
    first = runs[0].manifest
    description = ": ".join(filter(None, (f"Written from run {first.run_id}", first.suite.description)))
    return Population(
        table=ExpectedTable(name=name, description=description, rows=tuple(row for row, _ in made)),
        num_hosts=len(set(hosts)),
        chances=tuple(chance for _, chance in made),
    )


def _row(rows: Sequence[tuple[int, ExpectedRow]]) -> tuple[ExpectedRow, float | None]:
    """The row of all hosts, and the chance of a healthy host below it."""
    first = rows[0][1]
    assert all(row.value is not None for _, row in rows), "rows of a run have a value with a tolerance"
    by_host = grouped((host, math.log(row.value or 0.0)) for host, row in rows)
    more = METRICS[first.metric].higher_is_better
    centre = fmean(fmean(logs) for logs in by_host.values())
    chance = None
    if len(by_host) < LEAST_HOSTS:
        limits = [row.limits[0 if more else 1] or 0.0 for _, row in rows]
        reach = abs(math.log(min(limits) if more else max(limits)) - centre)
    else:
        sd = _sd_of_a_run([*by_host.values()])
        reach = max(tolerance_factor(len(by_host)) * sd, math.log1p(MIN_TOLERANCE))
        chance = chance_below(reach / sd, len(by_host)) if sd else 0.0
    if reach >= math.log(2):
        raise UsageError(
            f"{first.metric} of {first.workload} on {plural(first.count, 'GPU')} differs so widely between "
            f"{plural(len(by_host), 'host')} that a healthy one may have {'half' if more else 'twice'} the figure; "
            "leave out the runs of the host that is not healthy, or measure more hosts"
        )
    made = replace(
        first,
        value=math.exp(centre),
        tolerance=max(-math.expm1(-reach) if more else math.expm1(reach), MIN_TOLERANCE),
        hosts=len(by_host),
        runs=len(rows),
        source=f"{first.source}; and {plural(len(rows) - 1, 'run')} more" if len(rows) > 1 else first.source,
    )
    return made, chance


def _sd_of_a_run(hosts: Sequence[Sequence[float]]) -> float:
    """Standard deviation of one run's figure over hosts.

    A host's mean over r runs has only 1/r of the variance between runs; the rest is added from hosts with several.
    """
    between = variance([fmean(logs) for logs in hosts])
    several = [logs for logs in hosts if len(logs) > 1]
    freedom = sum(len(logs) - 1 for logs in several)
    within = sum(variance(logs) * (len(logs) - 1) for logs in several) / freedom if freedom else 0.0
    return math.sqrt(between + within * (1 - fmean(1 / len(logs) for logs in hosts)))


@lru_cache
def tolerance_factor(num: int, share: float = SHARE, confidence: float = CONFIDENCE) -> float:
    """Standard deviations from the mean of ``num`` values, two or more, to the one-sided tolerance limit.

    It solves P(mean - k s <= mu - z sigma) = confidence, by an integral over the distribution of s.
    """
    z, normal, freedom = NormalDist().inv_cdf(share), NormalDist(), num - 1
    log_front = math.log(2) + freedom / 2 * math.log(freedom / 2) - math.lgamma(freedom / 2)
    step = (1 + 8 / math.sqrt(2 * freedom)) / _WIDTHS
    widths = [(index + 0.5) * step for index in range(_WIDTHS)]
    weights = [step * math.exp(log_front + (freedom - 1) * math.log(s) - freedom * s * s / 2) for s in widths]
    low, high = 0.0, 1000.0
    while high - low > 1e-6 * high:
        k = (low + high) / 2
        reached = (normal.cdf(math.sqrt(num) * (k * s - z)) for s in widths)
        covered = sum(weight * part for weight, part in zip(weights, reached, strict=True))
        low, high = (k, high) if covered < confidence else (low, k)
    return high


def chance_below(factor: float, num: int) -> float:
    """Chance that one more healthy host is ``factor`` standard deviations below the mean of ``num`` hosts.

    Student's t of a new value: factor / sqrt(1 + 1/n), with n - 1 degrees of freedom.
    """
    return upper_tail(factor / math.sqrt(1 + 1 / num), num - 1)


def _hosts(manifests: Iterable[Manifest]) -> list[int]:
    """The host of each run, by its number. A CPU has no serial: CPUs of one model count as one host."""
    known: list[set[str]] = []
    hosts: list[int] = []
    for manifest in manifests:
        names = {gpu.uuid for gpu in manifest.machine.gpus} or {str(manifest.machine.cpu_model)}
        host = next((number for number, of_host in enumerate(known) if of_host & names), len(known))
        if host == len(known):
            known.append(set())
        known[host] |= names
        hosts.append(host)
    return hosts


def _refuse_runs(runs: Sequence[GoodRun]) -> None:
    names = [(run.manifest.run_id, *(gpu.uuid for gpu in run.manifest.machine.gpus)) for run in runs]
    if len(set(names)) < len(names):
        raise UsageError(f"{max(names, key=names.count)[0]} is given twice; a table counts each run once")
    first: dict[str, tuple[str, object]] = {}
    for run in runs:
        for point in run.manifest.plan.points:
            run_id, settings = first.setdefault(point.id, (run.manifest.run_id, point.settings))
            if settings != point.settings:
                raise UsageError(
                    f"{run_id} and {run.manifest.run_id}: {point.id} has different settings; "
                    "a table is written from runs of one suite"
                )
