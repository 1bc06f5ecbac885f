"""Rules of an expected table across its keys, on its rows as values; each problem keeps the path of its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from pybench.core.flops import MODEL_CLASSES
from pybench.files.suite.profiles import fields_of_workload
from pybench.files.toml.lines import KeyProblem
from pybench.files.toml.problem_text import did_you_mean
from pybench.model.expected import ANY, ExpectedRow, ExpectedTable, FigureRow, RatioRow
from pybench.model.machine import Network, Switch
from pybench.model.workloads.registry import METRICS_OF


@dataclass(frozen=True)
class WrittenTable:
    """A table as its file has it: its values, and the keys that each row gives, also those of the other form."""

    table: ExpectedTable
    keys: tuple[frozenset[str], ...]


def table_problems(written: WrittenTable, file_name: str) -> Iterator[KeyProblem]:
    """Every rule that the table breaks; ``file_name`` is its file's, without ``.toml``."""
    name = written.table.name
    if name != file_name:
        yield ("name",), f"found {name!r}, must be the file's own name, {file_name!r}"
    first: dict[str, int] = {}
    for index, (row, keys) in enumerate(zip(written.table.rows, written.keys, strict=True)):
        for path, message in _row_problems(row, keys):
            yield ("row", index, *path), message
        if (other := first.setdefault(row.key, index)) != index:
            yield ("row", index), f"has every key of row[{other}], which alone would be used; keep one of them"


def _row_problems(row: ExpectedRow, keys: frozenset[str]) -> Iterator[KeyProblem]:
    yield from _limit_problems(row, keys)
    if row.model_class not in (classes := (ANY, *MODEL_CLASSES)):
        valid = ", ".join(classes)
        yield ("model_class",), f"found {row.model_class!r}{did_you_mean(row.model_class, classes)}; valid are {valid}"
    if row.nvls not in (states := (ANY, *get_args(Switch))):
        yield ("nvls",), f"found {row.nvls!r}{did_you_mean(row.nvls, states)}; valid are {', '.join(states)}"
    if row.nodes > 1 and row.fabric not in (networks := get_args(Network)):
        yield ("fabric",), f"found {row.fabric!r}; between {row.nodes} nodes it is one of {', '.join(networks)}"
    yield from _metric_problems(row)
    yield from _where_problems(row)
    yield from _ratio_problems(row, keys) if isinstance(row, RatioRow) else _figure_problems(row, keys)


def _limit_problems(row: ExpectedRow, keys: frozenset[str]) -> Iterator[KeyProblem]:
    if (row.value is None) == (row.minimum is None and row.maximum is None):
        yield (), "needs either value, or minimum and/or maximum"
    if row.value is None and "tolerance" in keys:
        yield ("tolerance",), "belongs to value; minimum and maximum are exact"
    if row.minimum is not None and row.maximum is not None and row.minimum > row.maximum:
        yield ("minimum",), f"{row.minimum} is above maximum = {row.maximum}"


def _metric_problems(row: ExpectedRow) -> Iterator[KeyProblem]:
    metrics = METRICS_OF.get(row.workload, {})
    if row.metric not in metrics:
        valid = ", ".join(metrics) or f"none, {row.workload!r} is no workload"
        yield ("metric",), f"found {row.metric!r}{did_you_mean(row.metric, metrics)}; valid are {valid}"
        return
    gate = "minimum" if metrics[row.metric].higher_is_better else "maximum"
    one_sided = row.value is None and (row.minimum is None) != (row.maximum is None)
    if one_sided and getattr(row, gate) is None:
        yield (), f"can't fail anything: {row.metric} needs a {gate}"


def _ratio_problems(row: RatioRow, keys: frozenset[str]) -> Iterator[KeyProblem]:
    if "where" in keys and "baseline_count" not in keys:
        yield ("where",), "belongs to absolute figures, those with a unit, and to ratios that give baseline_count"
    if "per_gpu" in keys:
        yield ("per_gpu",), "belongs to absolute figures, those with a unit"
    if row.count <= row.baseline_count:
        yield ("count",), f"{row.count} is not above the baseline's count"


def _figure_problems(row: FigureRow, keys: frozenset[str]) -> Iterator[KeyProblem]:
    metric = METRICS_OF.get(row.workload, {}).get(row.metric)
    if metric is not None and metric.unit != row.unit:
        yield ("unit",), f"found {row.unit!r}, {row.metric} is in {metric.unit!r}"
    if "baseline_count" in keys:
        yield ("baseline_count",), "belongs to ratios, those without a unit"


def _where_problems(row: ExpectedRow) -> Iterator[KeyProblem]:
    valid = fields_of_workload(row.workload) if row.workload in METRICS_OF else frozenset()
    for name in row.where:
        if name not in valid:
            yield ("where", name), f"no setting of {row.workload}{did_you_mean(name, valid)}"
