"""Numbers as people read them."""

from __future__ import annotations

import pytest

from pybench.core import numbers
from tests.builders import estimate


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.4321, "0.4321"), (1.0, "1"), (12.3456, "12.35"), (999.94, "999.9"), (1234567.8, "1,234,568")],
)
def test_plain(value: float, text: str) -> None:
    """About four digits."""
    assert text == numbers.plain(value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.5, "s", "1.5 s"),
        (0.0123, "s", "12.3 ms"),
        (4e-7, "s", "0.4 µs"),
        (0.0, "s", "0 µs"),
        (17179869184.0, "bytes", "16 GiB"),
        (1536.0, "bytes", "1.5 KiB"),
        (0.5, "bytes", "0.5 B"),
        (0.0123456, "J/token", "12.35 mJ/token"),
        (456.78, "W", "456.8 W"),
        (0.4321, "tokens/s", "0.4321 tok/s"),
    ],
)
def test_quantity(value: float, unit: str, text: str) -> None:
    """Scaled to the unit that people use."""
    assert text == numbers.quantity(estimate(value, unit))


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.8761, 1.9239, "[1.876, 1.924]"),  # half-width 0.0239: two digits are 0.024
        (12300.0, 12400.5, "[12,300, 12,400]"),
        (10012.0, 15049.0, "[10,000, 15,000]"),  # half-width 2518.5: hundreds
        (2.0, 2.0, "[2, 2]"),
        (1.0, 1.0 + 1e-12, "[1.000000, 1.000000]"),
        (None, 2.0, ""),
        (1.0, None, ""),
    ],
)
def test_interval_shows_two_digits_of_its_half_width(low: float | None, high: float | None, text: str) -> None:
    """More would be noise, fewer would hide the spread."""
    assert text == numbers.interval(low, high)


def test_value_has_the_digits_of_its_interval() -> None:
    """And its unit's scale: 12.3 ms within 12.0 to 12.6."""
    assert numbers.quantity_with_interval(estimate(0.0123, "s", 0.012, 0.0126)) == "12.30 ms [12.00, 12.60]"
    assert numbers.quantity_with_interval(estimate(0.0123, "s")) == "12.3 ms"


def test_unknown_is_a_dash() -> None:
    """Never a zero."""
    shown = (numbers.quantity(None), numbers.quantity_with_interval(None), numbers.percent(None))
    assert shown == ("-", "-", "-")


@pytest.mark.parametrize(
    ("minimum", "maximum", "text"), [(None, None, "-"), (1.5, None, "≥ 1.5"), (None, 2.0, "≤ 2"), (1.5, 2.0, "1.5 - 2")]
)
def test_limits(minimum: float | None, maximum: float | None, text: str) -> None:
    """One side, both or none."""
    assert text == numbers.limits(minimum, maximum)


def test_limits_have_the_unit_of_what_they_limit() -> None:
    """So that 12 ms is not read against 0.02."""
    assert numbers.limits(0.02, 1.5, "s") == "20 ms - 1.5 s"


def test_a_value_beside_a_far_wider_interval_is_no_zero() -> None:
    """Nor is its lower end: nothing that was measured is 0."""
    wide = estimate(2945.6, "tokens/s", 14.3, 607_973.0)
    assert numbers.quantity_with_interval(wide) == "2,946 tok/s [14, 610,000]"
    assert numbers.quantity_with_interval(estimate(33.0, "tokens/s", 0.28, 3900.0)) == "33 tok/s [0.28, 3,900]"
    assert numbers.interval(0.0, 1000.0) == "[0, 1,000]"


def test_percent() -> None:
    """Percent lives in reports alone."""
    assert numbers.percent(0.95) == "95.0 %"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (3647.4, 3664.4, "3,655.9 ±8.5 tok/s"),
        (2000.0, 5000.0, "3,700 ±1,700 tok/s"),
        (1000.0, 9000.0, "3,700 tok/s [1,000, 9,000]"),
        (50.0, 250_000.0, "3,656 tok/s [50, 250,000]"),
        (50.0, 9.5e9, "3,656 ±over 100x tok/s"),
        (None, None, "3,656 tok/s"),
    ],
)
def test_value_with_its_spread(low: float | None, high: float | None, text: str) -> None:
    """The digits of the half-width; both ends where that exceeds the value: speeds do not reach below 0."""
    assert numbers.with_spread(estimate(3655.9, "tokens/s", low, high)) == text
