"""An expected table as the TOML that its reader reads."""

from __future__ import annotations

import dataclasses
import json

from pybench.model.expected import ExpectedRow, ExpectedTable

_DEFAULTS = {
    field.name: field.default if field.default is not dataclasses.MISSING else {}
    for field in dataclasses.fields(ExpectedRow)
}
_REQUIRED = {
    field.name
    for field in dataclasses.fields(ExpectedRow)
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
}


def table_text(table: ExpectedTable) -> str:
    """The whole file; keys that have their default are left out."""
    head = f"schema = 1\nname = {_value(table.name)}\ndescription = {_value(table.description)}\n"
    return head + "".join(f"\n[[row]]\n{_row(row)}" for row in table.rows)


def _row(row: ExpectedRow) -> str:
    values = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    told = {name: value for name, value in values.items() if name in _REQUIRED or value != _DEFAULTS[name]}
    return "".join(f"{name} = {_value(value)}\n" for name, value in told.items())


def _value(value: object) -> str:
    """TOML's strings, numbers and booleans are spelt as JSON's, but for DEL."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_value(item)}' for name, item in value.items())} }}"
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    return json.dumps(value, ensure_ascii=True)
