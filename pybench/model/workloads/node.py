"""Fields that the workloads share which measure a node itself: its GPUs, memories and links, without a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pybench.model.limits import Range
from pybench.model.workloads.settings import Degree, Settings

# A step of many operations is long against a clock's grain; a typing slip must not make it a day.
Repeats = Range(1, 100_000)
# Healthy GPUs differ in products by 5 % and more on a node of eight (stas00 ml-engineering, "Not all accelerators are
# created equal") and by 8 % on average over whole clusters (arXiv:2208.11035).
SLOWER_PRODUCTS_FRACTION = 0.10
# 16 TiB: more than any device holds.
Bytes = Range(1, 2**44)


@dataclass(frozen=True, kw_only=True)
class NodeSettings(Settings):
    """Settings of a workload that runs one rank on each of ``gpus`` devices and no model."""

    least_gpus: ClassVar[int] = 1

    gpus: Annotated[int, Degree, "GPUs (CPU cores without any) that take part, each with one rank"] = 1

    @property
    def num_gpus(self) -> int:
        """Devices that the point occupies."""
        return self.gpus
