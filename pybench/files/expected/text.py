"""An expected table as the TOML that its reader reads."""

from __future__ import annotations

import dataclasses

import tomli_w

from pybench.model.expected import ExpectedRow, ExpectedTable


def table_text(table: ExpectedTable) -> str:
    """The whole file; keys that have their default are left out."""
    rows = [_row(row) for row in table.rows]
    return tomli_w.dumps({"schema": 1, "name": table.name, "description": table.description, "row": rows})


def _row(row: ExpectedRow) -> dict[str, object]:
    fields = [field for field in dataclasses.fields(row) if field.name != "form"]
    values = {field: _rounded(getattr(row, field.name)) for field in fields}
    # Beside settings, a ratio's baseline shows that no unit was forgotten.
    kept = {"baseline_count"} if row.where else set()
    return {field.name: value for field, value in values.items() if value != _default(field) or field.name in kept}


def _default(field: dataclasses.Field[object]) -> object:
    """Default of a field; ``MISSING`` for a field that is always written."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _rounded(value: object) -> object:
    """Figures are written with six digits."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
