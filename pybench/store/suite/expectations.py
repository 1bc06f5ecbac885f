"""A checked ``[[benchmark.expect]]`` table as the expectation that it states."""

from __future__ import annotations

from typing import Any

from pybench.model.suite import Comparison, Expectation, Limits, Scaling, TableFigure


def expectation_of(table: dict[str, Any]) -> Expectation:
    """Build it from keys that fit together: ``checks`` has refused every mix."""
    if "along" in table:
        return Scaling(**table)
    if "table" in table:
        return TableFigure(**table)
    order = next((key for key in ("below", "above") if key in table), None)
    if order is None:
        return Limits(**table)
    rest = {key: value for key, value in table.items() if key != order}
    return Comparison(**{**rest, "order": order, "other": table[order]})
