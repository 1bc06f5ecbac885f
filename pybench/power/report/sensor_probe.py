"""What a probe of the power sensors found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pybench.power.sensor_probe import CallCost, SensorProbe


def render(probes: Sequence[SensorProbe]) -> str:
    """A block of lines for each GPU."""
    return "\n".join(line for probe in probes for line in _lines(probe)) + "\n"


def as_json(probes: Sequence[SensorProbe]) -> list[dict[str, Any]]:
    """Every GPU's probe; unknown is null."""
    return [asdict(probe) for probe in probes]


def _lines(probe: SensorProbe) -> list[str]:
    spread = probe.series_spacing_s
    spacing = "" if spread is None else f", spaced {_ms(spread[0])} to {_ms(spread[1])}"
    depth = "" if probe.series_depth is None else f", {probe.series_depth} kept"
    return [
        f"GPU {probe.uuid if probe.index is None else probe.index}: {probe.name}, scope {probe.scope}",
        f"  works            {', '.join(probe.capabilities) or 'nothing'}",
        f"  energy counter   every {_ms(probe.counter_period_s)}",
        f"  driver's series  every {_ms(probe.series_period_s)}{spacing}{depth}",
        f"  polled power     every {_ms(probe.polled_period_s)}",
        *(f"  {_cost(cost)}" for cost in probe.calls),
    ]


def _cost(cost: CallCost) -> str:
    if cost.median_s is None or cost.largest_s is None:
        return f"{cost.call}: {cost.error}"
    return f"{cost.call}: {cost.median_s * 1e6:.1f} µs, at most {cost.largest_s * 1e6:.1f} µs"


def _ms(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1e3:.1f} ms"
