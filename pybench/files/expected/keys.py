"""The keys that a row of an expected table may have, of a ratio and of a figure together."""

from __future__ import annotations

import dataclasses
from typing import Any

from pybench.files.suite.schema import fields_of
from pybench.model.expected import FigureRow, RatioRow

_FORM = "form"
"""Not written: it follows from the unit, which only figures have."""


def row_keys() -> dict[str, Any]:
    """Keys with their checked types."""
    return {name: kind for name, kind in (fields_of(RatioRow) | fields_of(FigureRow)).items() if name != _FORM}


def required_keys() -> set[str]:
    """Keys that every row has."""
    return set.intersection(*(_without_default(kind) for kind in (RatioRow, FigureRow)))


def _without_default(kind: type[RatioRow | FigureRow]) -> set[str]:
    unset = dataclasses.MISSING
    return {
        field.name for field in dataclasses.fields(kind) if field.default is unset and field.default_factory is unset
    }
