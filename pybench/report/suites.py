"""The suites that come with pybench."""

from __future__ import annotations

import io
from collections.abc import Mapping

from pybench.report.text.table import console, hanging, without_trailing_spaces


def render_suites(descriptions: Mapping[str, str], *, width: int = 80) -> str:
    """Names, which commands take in the place of a file, and what each suite measures."""
    stream = io.StringIO()
    out = console(stream, width, color=False)
    for name, description in descriptions.items():
        hanging(out, f"{name}: {description}")
    hanging(out, "next: pybench plan NAME prints a suite's points, pybench run NAME measures them")
    return without_trailing_spaces(stream.getvalue())
