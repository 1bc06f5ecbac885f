"""Counters of a server, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress


def counters(page: str, names: Collection[str]) -> dict[str, float]:
    """Sums of those counters over their labels; names that the page lacks are missing."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        name, separator, _ = line.partition("{")
        if not separator:
            name = line.partition(" ")[0]
        if name in names:
            with suppress(ValueError):
                sums[name] = sums.get(name, 0.0) + float(line.rpartition("}")[2].split()[0 if separator else 1])
    return sums


def increases(
    metrics: Mapping[str, tuple[str, ...]], before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    """Each metric's increase, divided by that of its second counter if it has one; unknown ones are missing."""
    values = {}
    for metric, names in metrics.items():
        if all(name in before and name in after for name in names):
            amount, *divisors = (after[name] - before[name] for name in names)
            if amount >= 0 and all(divisor > 0 for divisor in divisors):
                values[metric] = amount / divisors[0] if divisors else amount
    return values
