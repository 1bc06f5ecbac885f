"""Input and output of a workload's rules."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

LARGEST = 1e60
"""Far beyond any quantity that is measured; sums of squares stay finite."""
INTEGERS = range(-(2**63), 2**63)
"""64 bits: enough for every clock and count."""


@dataclass(frozen=True)
class Range:
    """Inclusive limits of a number; ``None`` leaves that side open."""

    minimum: float | None = None
    maximum: float | None = None


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


@dataclass(frozen=True)
class Need:
    """A setting that needs another one: the values of ``option`` in ``when`` need ``other`` to be in ``wanted``.

    ``when``: ``None`` stands for every given value. ``wanted``: ``None`` stands for every given value, and a ``None``
    among several values for a setting that is not given. ``why`` is the message.
    """

    option: str
    other: str
    wanted: Container[object] | None = None
    why: str = ""
    when: Container[object] | None = None


def unmet_needs(given: GivenSettings, needs: Iterable[Need]) -> Iterator[Breach]:
    """A breach for each need that the settings do not meet."""
    for need in needs:
        options = [value for value in given.values(need.option) if value is not None]
        applies = any(need.when is None or value in need.when for value in options)
        others = [value for value in given.values(need.other) if need.wanted is not None or value is not None]
        is_met = bool(others) if need.wanted is None else all(value in need.wanted for value in others or [None])
        if applies and not is_met:
            yield Breach(need.why or f"needs {need.other}", need.option)


Rule = Callable[[GivenSettings], Iterator[Breach]]
ScalingRule = Callable[[GivenSettings, str, str], Iterator[Breach]]
"""Takes settings, kind of scaling and its axis; a breach's key is a key of the expectation."""


def shared_work_rules(_given: GivenSettings, scaling: str, _along: str) -> Iterator[Breach]:
    """Rules of workloads whose ``batch_size`` counts all GPUs: more GPUs have the same work."""
    if scaling == "weak":
        yield Breach("batch_size is of all GPUs, so that more of them have the same work: take 'strong'", "scaling")
