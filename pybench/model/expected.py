"""Expected tables: the speedups that healthy machines give, and where each figure comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.settings import Range

ANY = "any"


@dataclass(frozen=True, kw_only=True)
class ExpectedRow:
    """One figure. ``any`` in a key matches everything; the row with the most keys spelled out wins.

    The figure is the metric's ratio to the baseline, point over baseline: either ``value`` with a relative
    ``tolerance``, or ``minimum`` and/or ``maximum``. ``kind`` says how it is known.
    """

    machine: Annotated[str, "machine kind, such as h200, or any"]
    workload: Annotated[str, "workload the figure is for"]
    metric: Annotated[str, "metric whose ratio it is"]
    count: Annotated[int, Range(2, 100_000), "GPUs"]
    source: Annotated[str, "where the figure comes from"]
    kind: Annotated[Literal["measured", "published", "seed"], "measured by us, published, or promised in a guide"]
    fabric: Annotated[str, "nvlink, pcie, none or any"] = ANY
    backend: Annotated[str, "backend or any"] = ANY
    model_class: Annotated[str, "model size class, such as 8b, or any"] = ANY
    baseline_count: Annotated[int, Range(1, 100_000), "GPUs of the baseline"] = 1
    value: Annotated[float | None, Range(0), "expected ratio"] = None
    tolerance: Annotated[float, Range(0, 1), "relative tolerance of value"] = 0.05
    minimum: Annotated[float | None, Range(0), "least acceptable ratio"] = None
    maximum: Annotated[float | None, Range(0), "greatest expected ratio"] = None


@dataclass(frozen=True, kw_only=True)
class ExpectedTable:
    """A file of ``suites/expected/``."""

    name: str
    description: str
    rows: tuple[ExpectedRow, ...]
