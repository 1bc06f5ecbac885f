"""A whole training job, of which a benchmark measures a few steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pybench.model.limits import Range


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a user trains: every sample so many times."""

    samples: Annotated[int, Range(1, 1_000_000_000_000), "samples of an epoch"]
    epochs: Annotated[int, Range(1, 10_000), "passes over all samples"] = 1
