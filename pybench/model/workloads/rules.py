"""What the rules of a workload are given, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GivenSettings:
    """The settings of a benchmark: ``fixed`` ones, and ``axes`` with the values that each takes in turn."""

    fixed: Mapping[str, object]
    axes: Mapping[str, Sequence[object]]

    def values(self, name: str) -> tuple[object, ...]:
        """Values that a setting has in the benchmark's points; empty where it is not given."""
        if name in self.axes:
            return tuple(self.axes[name])
        return (self.fixed[name],) if name in self.fixed else ()


@dataclass(frozen=True)
class Breach:
    """A rule that a benchmark breaks, and the ``key`` to change; ``None`` where no single key is at fault."""

    message: str
    key: str | None = None


Rule = Callable[[GivenSettings], Iterator[Breach]]
ScalingRule = Callable[[GivenSettings, str, str], Iterator[Breach]]
"""Of the settings, the kind of scaling and the axis that it runs along; a breach's key is one of the expectation."""


def shared_work_rules(_given: GivenSettings, scaling: str, _along: str) -> Iterator[Breach]:
    """Of workloads whose ``batch_size`` is of all GPUs together: more of them have the same work."""
    if scaling == "weak":
        yield Breach("batch_size is of all GPUs, so that more of them have the same work: take 'strong'", "scaling")


def no_rule(_given: GivenSettings) -> Iterator[Breach]:
    """Every combination of valid settings makes sense."""
    return iter(())


def no_scaling_rule(_given: GivenSettings, _scaling: str, _along: str) -> Iterator[Breach]:
    """Every kind of scaling makes sense along every axis of GPUs."""
    return iter(())
