"""Numbers and names of nodes as people read them; files keep full precision."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pybench.model.results import Estimate
from pybench.model.text import BYTE_SCALES

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "h": ((1.0, "h"), (1 / 60, "min"), (1 / 3600, "s")),
    "bytes": BYTE_SCALES,
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1.0, "FLOP/s")),
    "bytes/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1.0, "B/s")),
    "tokens/s": ((1.0, "tok/s"),),
    "J/token": ((1.0, "J/token"), (1e-3, "mJ/token")),
}

# Digits of a half-width worth reading: the rest of an interval is noise of its own estimate.
_SPREAD_DIGITS = 2
_MAX_DECIMALS = 6
# Halves of intervals, over the value, that show only that nothing is known.
_UNKNOWN_FROM = 100
UNKNOWN_SPREAD = f"±over {_UNKNOWN_FROM}x"
"""Stands behind a value in the place of such a half."""


@dataclass(frozen=True)
class Scale:
    """A unit to show values in, and how much of the base unit it is."""

    factor: float
    unit: str

    @property
    def suffix(self) -> str:
        """The unit behind a value; nothing of ratios."""
        return f" {self.unit}" if self.unit else ""


ONE = Scale(1.0, "")
"""Of ratios."""


def plain(value: float, digits: int = 4) -> str:
    """``value`` with about ``digits`` significant digits and thousands set apart."""
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def quantity(estimate: Estimate | None) -> str:
    """Value with about four significant digits and unit, scaled; a dash where nothing was measured."""
    if estimate is None:
        return "-"
    scale = scale_of(estimate)
    return f"{plain(estimate.value / scale.factor)} {scale.unit}"


def interval(low: float | None, high: float | None) -> str:
    """Interval in brackets; empty where the spread is unknown."""
    if low is None or high is None:
        return ""
    return f"[{', '.join(_rounded(end, _decimals(low, high)) for end in (low, high))}]"


def quantity_with_interval(estimate: Estimate | None, scale: Scale | None = None) -> str:
    """Value, unit and interval in one unit, with the digits that the interval supports."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return quantity(estimate)
    scale = scale or scale_of(estimate)
    low, high = estimate.low / scale.factor, estimate.high / scale.factor
    return f"{_rounded(estimate.value / scale.factor, _decimals(low, high))}{scale.suffix} {interval(low, high)}"


def limits(minimum: float | None, maximum: float | None, unit: str | None = None) -> str:
    """Limits of a ratio, or of a quantity in ``unit``; a dash where there is none."""
    low, high = (
        ""
        if end is None
        else plain(end)
        if unit is None
        else quantity(Estimate(value=end, low=None, high=None, unit=unit))
        for end in (minimum, maximum)
    )
    if low and high:
        return f"{low} - {high}"
    return f"≥ {low}" if low else f"≤ {high}" if high else "-"


def percent(fraction: float | None) -> str:
    """A fraction as a percentage."""
    return "-" if fraction is None else f"{fraction * 100:.1f} %"


def short_percent(fraction: float) -> str:
    """A fraction as a percentage of two digits."""
    return f"{plain(100 * fraction, 2)} %"


def signed_percent(fraction: float) -> str:
    """``-3.1 %``; two decimals below 1 %."""
    decimals = 1 if round(abs(100 * fraction), 1) >= 1 else 2
    return f"{100 * fraction:+.{decimals}f} %"


def _decimals(low: float, high: float) -> int | None:
    """Decimals (negative: tens, hundreds …) that show two digits of the half-width; ``None`` for no width."""
    half_width = (high - low) / 2
    if half_width <= 0:
        return None
    return min(_SPREAD_DIGITS - 1 - math.floor(math.log10(half_width)), _MAX_DECIMALS)


def _rounded(value: float, decimals: int | None) -> str:
    """Rounded to ``decimals``; two digits where that would leave 0, as with a far wider interval."""
    if decimals is None:
        return plain(value)
    rounded = round(value, decimals)
    return plain(value, _SPREAD_DIGITS) if value and not rounded else f"{rounded:,.{max(decimals, 0)}f}"


def scale_of(estimate: Estimate) -> Scale:
    """The scale that suits its value."""
    scales = _SCALES.get(estimate.unit, ((1.0, estimate.unit),))
    return Scale(*next((scale for scale in scales if abs(estimate.value) >= scale[0]), scales[-1]))


def shared_scale(estimates: Iterable[Estimate]) -> Scale | None:
    """The scale that suits the smallest of ``estimates``; ``None`` where units differ or nothing was measured."""
    ordered = sorted(estimates, key=lambda estimate: abs(estimate.value))
    return scale_of(ordered[0]) if len({estimate.unit for estimate in ordered}) == 1 else None


def with_spread(estimate: Estimate | None, scale: Scale | None = None) -> str:
    """Value, then the larger half of its interval: ``3,655.9 ±8.5``; ``52 [24, 110]`` where that exceeds the value.

    Its lower end would be below zero then. Beyond a hundred times the value the half is no longer a figure: ``1.7 ±over
    100x``. Without ``scale`` the unit follows.
    """
    if estimate is None:
        return "-"
    shown = Scale(scale.factor, "") if scale else scale_of(estimate)
    value, half = estimate.value / shown.factor, spread(estimate.value, estimate.low, estimate.high)
    if not half:
        return f"{plain(value)}{shown.suffix}"
    if half > _UNKNOWN_FROM * abs(estimate.value):
        return f"{plain(value, _SPREAD_DIGITS)} {UNKNOWN_SPREAD}{shown.suffix}"
    if half > abs(estimate.value):
        return quantity_with_interval(estimate, shown)
    half /= shown.factor
    decimals = _decimals(-half, half)
    return f"{_rounded(value, decimals)} ±{_rounded(half, decimals)}{shown.suffix}"


def bracketed(value: float, low: float, high: float, ends: Iterable[str]) -> str:
    """The ``ends`` in brackets; without them an interval of logarithms whose half is over a hundred times the value.

    About zero an interval may be as wide and still lie within a limit.
    """
    is_unknown = low > 0 and max(high - value, value - low) > _UNKNOWN_FROM * value
    return UNKNOWN_SPREAD if is_unknown else f"[{', '.join(ends)}]"


def spread(value: float, low: float | None, high: float | None) -> float | None:
    """The larger distance from ``value`` to an end of its interval; ``None`` where the interval is unknown."""
    return None if low is None or high is None else max(high - value, value - low)


def gate(minimum: float | None, maximum: float | None, scale: Scale | None = None, *, lower: bool) -> str:
    """The limit that decides, ``≥`` the least or ``≤`` the greatest; a dash where there is none."""
    limit = minimum if lower else maximum
    return "-" if limit is None else f"{'≥' if lower else '≤'} {plain(limit / (scale.factor if scale else 1.0))}"


_NUMBERED = re.compile(r"(.*?)(\d{1,18})")


def node_ranges(names: Iterable[str]) -> str:
    """All names in one text, sorted; numbers at the end of equal names are put together as ``scontrol`` does.

    A run of numbers has one width: ``9`` and ``10`` are one, as are ``09`` and ``10``, but not ``9`` and ``010``.
    """
    by_prefix: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        prefix, number = (match[1], match[2]) if match else (name, "")
        by_prefix.setdefault(prefix, []).append(number)
    texts: list[str] = []
    for prefix, numbers in sorted(by_prefix.items()):
        numbered = [number for number in numbers if number]
        texts += [prefix] * (len(numbers) - len(numbered))  # the name without a number
        if numbered:
            texts.append(prefix + (numbered[0] if len(numbered) == 1 else f"[{','.join(_runs(numbered))}]"))
    return ",".join(texts)


def _runs(numbers: Sequence[str]) -> Iterator[str]:
    """Runs such as ``01-03``, from first to last number; runs with fewer digits come first."""
    runs: list[tuple[str, str]] = []
    for number in sorted(numbers, key=lambda text: (int(text), len(text))):
        # A run whose first number begins with zeros keeps its width.
        follows = (f"{int(last) + 1:0{len(first) if first.startswith('0') else 1}}" for first, last in runs)
        place = next((place for place, following in enumerate(follows) if following == number), None)
        if place is None:
            runs.append((number, number))
        else:
            runs[place] = (runs[place][0], number)
    for first, last in sorted(runs, key=lambda run: (len(run[0]), int(run[0]))):
        yield first if first == last else f"{first}-{last}"
