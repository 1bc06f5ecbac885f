"""A span of time on the command line: ``90s``, ``20m``, ``1h30m``."""

from __future__ import annotations

import re

import click

from pybench.model.plan_options import MOST_TIME_S

_FORM = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")


class Duration(click.ParamType[float]):
    """Converts to seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds of a text such as ``20m``; click has it fail with the valid forms."""
        if isinstance(value, int | float):
            return float(value)
        found = _FORM.fullmatch(value)
        hours, minutes, seconds = (int(part or 0) for part in (found.groups() if found else ("", "", "")))
        total_s = 3600 * hours + 60 * minutes + seconds
        if not value or not 0 < total_s <= MOST_TIME_S:
            self.fail(f"found {value!r}, expected a time of at most 7 days such as 90s, 20m or 1h30m", param, ctx)
        return float(total_s)
