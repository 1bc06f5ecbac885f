"""Expected tables: the speedups that healthy machines give, and where each figure comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

from pybench.model.suite import AxisValue
from pybench.model.text import plural
from pybench.model.workloads.settings import Range

ANY = "any"
ANY_GPU = "gpu"
"""A machine of every kind but ``cpu``."""

LEAST_HOSTS = 3
"""A measured row of fewer hosts is provisional: two hosts say nearly nothing of their spread."""

RowKind = Literal["measured", "published", "claim"]


def provisional(hosts: int | None) -> str:
    """A note on a row of fewer than three hosts; empty where it has more, or names none."""
    return "" if hosts is None or hosts >= LEAST_HOSTS else f"provisional row of {plural(hosts, 'host')}"


@dataclass(frozen=True, kw_only=True)
class _Row:
    """Fields of every row. ``any`` in a key matches everything; the closest row wins (``pybench.core.lookup``).

    The figure is either ``value`` with a relative ``tolerance``, or ``minimum`` and/or ``maximum``. A ``claim`` is a
    figure of a guide or a vendor, for any machine: reports show it next to the measured figure. It judges nothing.
    """

    machine: Annotated[str, "machine kind such as h200, gpu for every kind but cpu, or any"]
    workload: Annotated[str, "workload the figure is for"]
    metric: Annotated[str, "metric that the figure is of"]
    count: Annotated[int, Range(1, 100_000), "GPUs"]
    source: Annotated[str, "where the figure comes from"]
    kind: Annotated[RowKind, "measured by us, published with its origin, or a claim, which judges nothing"]
    fabric: Annotated[str, "between GPUs: nvlink, pcie, none or any; between nodes: infiniband, roce or ethernet"] = ANY
    nodes: Annotated[int, Range(1, 1024), "hosts that the GPUs are spread over"] = 1
    backend: Annotated[str, "backend or any"] = ANY
    model_class: Annotated[str, "model size class, such as 8b, or any"] = ANY
    nvls: Annotated[str, "whether NCCL may reduce in the NVSwitches (NVLink SHARP): on, off or any"] = ANY
    where: Annotated[dict[str, AxisValue], "settings that a point must have"] = field(default_factory=dict)
    conditions: Annotated[str, "more conditions of the figure, such as a message size"] = ""
    value: Annotated[float | None, Range(0), "expected figure"] = None
    tolerance: Annotated[float, Range(0, 1), "relative tolerance of value"] = 0.05
    minimum: Annotated[float | None, Range(0), "least acceptable figure"] = None
    maximum: Annotated[float | None, Range(0), "greatest expected figure"] = None
    hosts: Annotated[int | None, Range(1, 100_000), "healthy hosts that the figure comes from"] = None
    runs: Annotated[int | None, Range(1, 100_000), "runs on these hosts"] = None

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """Least and greatest expected figure: the range, or the value with its tolerance."""
        if self.value is None:
            return self.minimum, self.maximum
        return self.value * (1 - self.tolerance), self.value * (1 + self.tolerance)

    @property
    def key(self) -> str:
        """All that tells the row from others of its table: its fields without the figure and its origin."""
        settings = dict(sorted(self.where.items()))
        figure: dict[str, Any] = dict.fromkeys(("value", "minimum", "maximum", "hosts", "runs"))
        return repr(replace(self, where=settings, tolerance=0.0, source="", **figure))


@dataclass(frozen=True, kw_only=True)
class RatioRow(_Row):
    """The metric's ratio to the baseline, point over baseline; ``where`` is of the point."""

    baseline_count: Annotated[int, Range(1, 100_000), "GPUs of the baseline"] = 1
    form: Literal["ratio"] = "ratio"


@dataclass(frozen=True, kw_only=True)
class FigureRow(_Row):
    """The metric itself, for points of ``count`` GPUs."""

    unit: Annotated[str, "unit of an absolute figure; none for a ratio"]
    per_gpu: Annotated[bool, "an absolute figure of each GPU or link: holds for count GPUs and more"] = False
    form: Literal["figure"] = "figure"


ExpectedRow = RatioRow | FigureRow
"""One figure of a table."""


@dataclass(frozen=True, kw_only=True)
class ExpectedTable:
    """A file of ``suites/expected/``."""

    name: str
    description: str
    rows: tuple[ExpectedRow, ...]
