"""What predictions of a group leave out of work that they cover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pybench.core.numbers import percent
from pybench.core.summary import INPUT_BOUND
from pybench.explain.measured_step import MeasuredStep
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.train import Train

_GROUPED = (
    "products of experts are grouped in one kernel, whose rate the node's run does not measure: that of single ones "
    "is taken"
)
_LAUNCHED = "launches of single kernels are left out (enforce_eager)"


def left_out(group: Sequence[MeasuredStep]) -> Iterator[str]:
    """Sentences, each about all points of the group."""
    settings, shape = group[0].settings, group[0].point.shape
    if isinstance(settings, Train) and shape is not None and shape.num_experts > 1:
        yield _GROUPED
    if isinstance(settings, Generate) and settings.enforce_eager:
        yield _LAUNCHED
    waits = [step.input_wait_fraction for step in group if step.input_wait_fraction is not None]
    if waits and max(waits) <= INPUT_BOUND:
        yield f"the loader is left out: its steps wait for it at most {percent(max(waits))} of their length"
