"""Expected tables: the speedups that healthy machines give, and where each figure comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pybench.model.limits import Range

ANY = "any"
ANY_GPU = "gpu"
"""As a machine: every kind but ``cpu``."""


SettingValue = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class ExpectedRow:
    """One figure. ``any`` in a key matches everything; the closest row wins (``pybench.judge.scaling.lookup``).

    The figure is the metric's ratio to the baseline, point over baseline: either ``value`` with a relative
    ``tolerance``, or ``minimum`` and/or ``maximum``. With a ``unit`` it is no ratio but the metric itself, and holds
    for points of ``count`` GPUs whose settings are as in ``where``. ``kind`` says how it is known.
    """

    machine: Annotated[str, "machine kind such as h200, gpu for every kind but cpu, or any"]
    workload: Annotated[str, "workload the figure is for"]
    metric: Annotated[str, "metric whose ratio it is"]
    count: Annotated[int, Range(1, 100_000), "GPUs"]
    source: Annotated[str, "where the figure comes from"]
    kind: Annotated[Literal["measured", "published", "seed"], "measured by us, published, or promised in a guide"]
    fabric: Annotated[str, "nvlink, pcie, none or any"] = ANY
    backend: Annotated[str, "backend or any"] = ANY
    model_class: Annotated[str, "model size class, such as 8b, or any"] = ANY
    baseline_count: Annotated[int, Range(1, 100_000), "GPUs of the baseline"] = 1
    unit: Annotated[str | None, "unit of an absolute figure; none for a ratio"] = None
    conditions: Annotated[str, "what else the figure holds for, such as a message size"] = ""
    where: Annotated[dict[str, SettingValue], "settings that a point must have for an absolute figure"] = field(
        default_factory=dict
    )
    per_gpu: Annotated[bool, "an absolute figure of each GPU or link: holds for count GPUs and more"] = False
    value: Annotated[float | None, Range(0), "expected figure"] = None
    tolerance: Annotated[float, Range(0, 1), "relative tolerance of value"] = 0.05
    minimum: Annotated[float | None, Range(0), "least acceptable figure"] = None
    maximum: Annotated[float | None, Range(0), "greatest expected figure"] = None


@dataclass(frozen=True, kw_only=True)
class ExpectedTable:
    """A file of ``suites/expected/``."""

    name: str
    description: str
    rows: tuple[ExpectedRow, ...]
