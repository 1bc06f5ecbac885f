"""Numbers as people read them; files keep full precision."""

from __future__ import annotations

from pybench.model.results import Estimate

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    "J/token": ((1.0, "J/token"), (1e-3, "mJ/token")),
}


def plain(value: float, digits: int = 4) -> str:
    """``value`` with about ``digits`` significant digits and thousands set apart."""
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def quantity(estimate: Estimate | None) -> str:
    """Value and unit, scaled; a dash where nothing was measured."""
    if estimate is None:
        return "-"
    factor, unit = _scale(estimate)
    return f"{plain(estimate.value / factor)} {unit}"


def interval(low: float | None, high: float | None, *, factor: float = 1.0) -> str:
    """Interval in brackets; empty where the spread is unknown."""
    return "" if low is None or high is None else f"[{plain(low / factor)}, {plain(high / factor)}]"


def quantity_with_interval(estimate: Estimate | None) -> str:
    """Value, unit and interval in one unit."""
    if estimate is None:
        return "-"
    factor, unit = _scale(estimate)
    spread = interval(estimate.low, estimate.high, factor=factor)
    return f"{plain(estimate.value / factor)} {unit}" + (f" {spread}" if spread else "")


def percent(fraction: float | None) -> str:
    """A fraction as a percentage."""
    return "-" if fraction is None else f"{fraction * 100:.1f} %"


def _scale(estimate: Estimate) -> tuple[float, str]:
    scales = _SCALES.get(estimate.unit, ((1.0, estimate.unit),))
    return next((scale for scale in scales if abs(estimate.value) >= scale[0]), scales[-1])
