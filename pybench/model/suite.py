"""A suite as read from its file, and the plan of points it expands to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from pybench.model.container import ContainerRequest
from pybench.model.decoder_shape import Architecture, DecoderShape
from pybench.model.effort import Effort
from pybench.model.limits import Range
from pybench.model.workloads.registry import AnySettings
from pybench.model.workloads.settings import WorkloadName

AxisValue = str | int | float | bool
DeviceKind = Literal["cuda", "cpu"]
ScalingKind = Literal["strong", "weak"]
Order = Literal["below", "above"]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One thing a benchmark must show.

    With ``along`` it is a scaling expectation: the metric's ratio to the baseline point of the same run, judged against
    an expected table, or only shown where there is no ``table``. Without ``along`` it is an absolute one: the metric
    itself, in its own unit, against ``minimum`` and ``maximum``, or against the absolute figures of ``table``. With
    ``below`` or ``above`` it is an order: each point's metric against that of the other benchmark's point with as many
    GPUs and the same values of the axes that both have. With ``widening_along`` besides, its ratio to the other must
    also move away from there, from the axis's least value to its greatest.
    """

    metric: Annotated[str, "metric that is judged"]
    scaling: Annotated[ScalingKind | None, "strong: same work in all; weak: same work per GPU"] = None
    along: Annotated[str | None, "axis the GPU count grows along"] = None
    table: Annotated[str | None, "expected table, a file of expected/ without .toml"] = None
    baseline: Annotated[int | None, Range(1, 1024), "count of the baseline point; default: the smallest"] = None
    minimum: Annotated[float | None, "least acceptable value"] = None
    maximum: Annotated[float | None, "greatest acceptable value"] = None
    below: Annotated[str | None, "benchmark that the metric must stay at or below"] = None
    above: Annotated[str | None, "benchmark that the metric must stay at or above"] = None
    widening_along: Annotated[str | None, "axis along which the distance to the other benchmark must grow"] = None

    @property
    def order(self) -> tuple[Order, str] | None:
        """Which order is expected to which benchmark."""
        if self.below is not None:
            return "below", self.below
        return None if self.above is None else ("above", self.above)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One ``[[benchmark]]`` table with the profile already applied.

    ``settings`` are the workload's fixed fields, ``axes`` the swept ones in file order, each with its values.
    """

    name: str
    workload: WorkloadName
    settings: dict[str, Any]
    axes: dict[str, tuple[AxisValue, ...]]
    effort: Effort
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A suite file that passed every check. ``profile`` names the profile applied, ``None`` for none."""

    name: str
    description: str
    benchmarks: tuple[Benchmark, ...]
    profile: str | None = None
    path: str = ""
    container: ContainerRequest = field(default_factory=ContainerRequest)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One combination of axis values: what one attempt measures.

    ``axes`` holds the values that tell this point from its siblings and make its ``id``. ``architecture`` is ``None``
    where no model runs.
    """

    id: str
    benchmark: str
    axes: dict[str, AxisValue]
    settings: AnySettings
    effort: Effort
    architecture: Architecture | None = field(repr=False)

    @property
    def num_gpus(self) -> int:
        """Devices the point occupies."""
        return self.settings.num_gpus

    @cached_property
    def shape(self) -> DecoderShape | None:
        """Sizes of the model; ``None`` where no model runs."""
        return None if self.architecture is None else DecoderShape.from_config(self.architecture)

    @property
    def digest(self) -> str:
        """Hash of all that shapes the measurement; a resumed run trusts only records that carry the same one."""
        shaped = {
            "id": self.id,
            "settings": self.settings.to_json(),
            "steps": self.effort.steps,
            "max_warmup_steps": self.effort.max_warmup_steps,
            "dither_ms": self.effort.dither_ms,
            "share_process": self.effort.share_process,
            "architecture": self.architecture,
        }
        return hashlib.sha256(json.dumps(shaped, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Skip:
    """A point that can't be measured here, and why. It stays visible in every report."""

    id: str
    benchmark: str
    axes: dict[str, AxisValue]
    num_gpus: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Every point of a suite, in the order they run, and those that can't run.

    ``left_out`` are points above the user's own GPU limit: visible in reports, but not missing.
    """

    points: tuple[Point, ...]
    skips: tuple[Skip, ...]
    left_out: tuple[Skip, ...] = ()
