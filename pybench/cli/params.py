"""Types of parameters: paths, spans of time, and what commands that compare runs have in common."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.model.errors import UsageError
from pybench.model.manifest import MOST_TIME_S

if TYPE_CHECKING:
    from pybench.model.figures import SmallestEffects

    _Seconds = click.ParamType[float]
    _Pair = click.ParamType[tuple[str, Path]]
else:
    _Seconds = _Pair = click.ParamType  # generic from click 8.4 on

_FORM = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")


class Duration(_Seconds):
    """A span of time such as ``90s``, ``20m`` or ``1h30m``, in seconds."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds of a text. Fails with the valid forms."""
        if isinstance(value, int | float):
            return float(value)
        match = _FORM.fullmatch(value)
        hours, minutes, seconds = (int(part or 0) for part in (match.groups() if match else ("", "", "")))
        total_s = 3600 * hours + 60 * minutes + seconds
        if not value or not 0 < total_s <= MOST_TIME_S:
            self.fail(f"found {value!r}, expected a time of at most 7 days such as 90s, 20m or 1h30m", param, ctx)
        return float(total_s)


class _Path(click.Path):
    """A path of at least one character."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse an empty text, which Python takes for the current folder."""
        if not os.fspath(value):
            self.fail("an empty path; is a variable of the shell not set?", param, ctx)
        return super().convert(value, param, ctx)


class _Folder(_Path):
    """A folder, such as a run's."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse a file in one line, also where only the results of a run are there."""
        path = Path(value)
        if path.is_file():
            command = f"pybench report {shlex.quote(str(path))}"
            kept = f"; what a results.json has is shown by: {command}" if path.suffix == ".json" else ""
            raise UsageError(f"{path}: a folder is needed here, and this is a file{kept}")
        return super().convert(value, param, ctx)


PATH = _Path(path_type=Path)
NAMED_PATH = _Path(path_type=str)
"""As written: a name may stand in front, ``NODE=PATH``."""
FILE = _Path(path_type=Path, dir_okay=False)
FOLDER = _Folder(path_type=Path, file_okay=False)


class _Output(_Pair):
    """``FORMAT=FILE``."""

    name = "output"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        """The format and the file."""
        name, _, file = value.partition("=")
        if name not in OUTPUTS or not file:
            self.fail(f"found {value!r}, expected FORMAT=FILE with a FORMAT of {', '.join(OUTPUTS)}", param, ctx)
        return name, Path(file)


OUTPUTS = ("json", "junit", "markdown", "github-annotations")
outputs_option = click.option(
    "-o", "--output", "outputs", type=_Output(), multiple=True, metavar="FORMAT=FILE",
    help=f"Write the result there, too; - is standard output. FORMAT: {', '.join(OUTPUTS)}. Repeatable.",
)  # fmt: skip
format_option = click.option(
    "--format", "name", type=click.Choice(("terminal", "json")), default="terminal", show_default=True,
    help="What to print.",
)  # fmt: skip
across_option = click.option(
    "--across", multiple=True, metavar="KEY",
    help="A key in which the runs may differ: driver, kernel, software, a package, settings, ... Repeatable.",
)  # fmt: skip
smallest_option = click.option(
    "--smallest", multiple=True, metavar="[METRIC=]PERCENT",
    help="Smallest change that counts, of all metrics or of one; default: 1. Repeatable.",
)  # fmt: skip


def effects_of(smallest: tuple[str, ...]) -> SmallestEffects:
    """The smallest effects that a command line names: ``1.5`` or ``METRIC=3``, per cent. Raises ``UsageError``."""
    from pybench.model.figures import SMALLEST_EFFECT, SmallestEffects
    from pybench.model.workloads.registry import METRICS

    default, by_metric = SMALLEST_EFFECT, {}
    for text in smallest:
        metric, _, number = text.rpartition("=")
        if metric and metric not in METRICS:
            raise UsageError(f"--smallest {text}: {metric} is no metric; docs/workloads.md lists them")
        try:
            fraction = float(number) / 100
        except ValueError:
            fraction = 0.0
        if not 0 < fraction < 1:
            raise UsageError(f"--smallest {text}: give per cent between 0 and 100, such as 1.5 or ttft_s=3")
        if metric:
            by_metric[metric] = fraction
        else:
            default = fraction
    return SmallestEffects(default=default, by_metric=by_metric)
