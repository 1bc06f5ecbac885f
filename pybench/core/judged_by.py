"""What will judge each point of a plan, known before any GPU hour is spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pybench.core.absolute import absolute_checks
from pybench.core.comparisons import comparison_results
from pybench.core.measurements import Measurements
from pybench.core.scaling import scaling_results
from pybench.core.summary import summarize
from pybench.model.machine import Machine
from pybench.model.suite import ExpectedTable, Plan, Point, Suite
from pybench.model.text import plural
from pybench.model.workloads.registry import METRICS, METRICS_OF, SLOWER_FRACTIONS

_ORDER = ("table", "prediction", "limit", "neighbours", "comparison", "baseline", "rates")
TABLE, PREDICTION, LIMIT, NEIGHBOURS, COMPARISON, BASELINE, RATES = _ORDER
NOTHING = "nothing"
_OF_EACH_GPU = {"peer_copy", *(name for name, own in METRICS_OF.items() if not SLOWER_FRACTIONS.keys().isdisjoint(own))}
"""Workloads that compare GPUs, or links between them, with each other."""


def judged_by(
    suite: Suite,
    plan: Plan,
    tables: Mapping[str, ExpectedTable],
    machine: Machine,
    predicts: Callable[[Point, Point], bool] = lambda _base, _point: False,
) -> dict[str, tuple[str, ...]]:
    """What judges each point, by its id: words of this module, ``nothing`` alone.

    ``table`` has a row for this machine, ``limit`` stands in the suite, ``neighbours`` are the other GPUs of the node.
    ``rates`` predict speedups of other points. ``predicts`` tells whether a rate of the second point over the first is
    predicted. GPUs that are not here, whose links are not known, are taken for ones joined by NVLink where a table has
    such rows.
    """
    measurements = Measurements.of(plan, ())
    planned = {point.id: point for point in plan.points}
    judges: dict[str, set[str]] = {name: set() for name in planned}
    theirs = [machine]
    if machine.gpus and machine.fabric == "none":
        theirs = [replace(machine, fabric="nvlink"), replace(machine, fabric="pcie")]
    for there in theirs:
        for row in scaling_results(suite, measurements, tables, there):
            point, base = planned.get(row.point_id), planned.get(row.baseline_id)
            if point is None or base is None:
                continue
            if row.expected is not None or (METRICS[row.metric].of_all_gpus and predicts(base, point)):
                judges[point.id].add(PREDICTION if row.expected is None else TABLE)
                judges[base.id].add(BASELINE)
        for check in absolute_checks(suite, measurements, summarize(measurements), tables, there):
            if check.point_id in judges and (check.minimum, check.maximum) != (None, None):
                judges[check.point_id].add(LIMIT if check.table is None else TABLE)
    rates = {benchmark.name for benchmark in suite.benchmarks if benchmark.gives_rates}
    orders = [row for row in comparison_results(suite, measurements) if planned.keys() >= set(row.point_ids)]
    compared = (point for point in plan.points if point.num_gpus > 1 and point.settings.workload in _OF_EACH_GPU)
    for name, word in (
        *((row.point_id, COMPARISON) for row in orders),
        *((point.id, RATES) for point in plan.points if point.benchmark in rates),
        *((point.id, NEIGHBOURS) for point in compared if point.benchmark not in rates),
    ):
        judges[name].add(word)
    return {name: tuple(word for word in _ORDER if word in words) or (NOTHING,) for name, words in judges.items()}


def judged_sentence(judges: Mapping[str, tuple[str, ...]], rates_run: str | None) -> str:
    """``of 20 points judged by table 4, neighbours 14, nothing 2``, and the earlier run whose rates predict."""
    counts = {word: sum(word in words for words in judges.values()) for word in (*_ORDER, NOTHING)}
    named = ", ".join(f"{word} {number}" for word, number in counts.items() if number) or NOTHING
    return f"of {plural(len(judges), 'point')} judged by {named}{f' (rates of {rates_run})' if rates_run else ''}"
