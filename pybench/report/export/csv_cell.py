"""A cell of CSV: text that stays text in a spreadsheet, numbers with all their digits."""

from __future__ import annotations

from pybench.report.text.printable import printable

_FORMULA = ("=", "+", "-", "@")
"""A spreadsheet computes text that begins so. Behind an apostrophe it does not."""


def csv_cell(value: object) -> str:
    """``value`` as text; empty for ``None``."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return repr(value)
    text = printable(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text
