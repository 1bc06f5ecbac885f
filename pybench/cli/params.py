"""Types of parameters: paths, spans of time, and what commands that compare runs have in common."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.io import require_apart
from pybench.files.safe_folder import read_named
from pybench.model.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pybench.model.figures import SmallestEffects

    _Seconds = click.ParamType[float]
    _Pair = click.ParamType[tuple[str, Path]]
else:
    _Seconds = _Pair = click.ParamType  # generic from click 8.4 on

_Given = str | os.PathLike[str]
_FORM = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6})s)?")


class Duration(_Seconds):
    """A span of time such as ``90s``, ``20m`` or ``1h30m``, in seconds."""

    name = "duration"

    def __init__(self, least_s: float = 1.0) -> None:
        self._least_s = least_s

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds of a text. Fails with the valid forms."""
        from pybench.model.manifest import MOST_TIME_S

        if isinstance(value, int | float):
            return float(value)
        match = _FORM.fullmatch(value)
        hours, minutes, seconds = (int(part or 0) for part in (match.groups() if match else ("", "", "")))
        total_s = 3600 * hours + 60 * minutes + seconds
        if not value or not self._least_s <= total_s <= MOST_TIME_S:
            self.fail(f"found {value!r}, expected a time of at most 7 days such as 90s, 20m or 1h30m", param, ctx)
        return float(total_s)


class _Path(click.Path):
    """A path of at least one character."""

    def convert(self, value: _Given, param: click.Parameter | None, ctx: click.Context | None) -> str | bytes | _Given:
        """Refuse an empty text, which Python takes for the current folder."""
        if not os.fspath(value):
            self.fail("an empty path; is a variable of the shell not set?", param, ctx)
        return super().convert(value, param, ctx)


class _Folder(_Path):
    """A folder, such as a run's."""

    def convert(self, value: _Given, param: click.Parameter | None, ctx: click.Context | None) -> str | bytes | _Given:
        """Refuse a file in one line, also where only the results of a run are there."""
        path = Path(value)
        if path.is_file():
            command = f"pybench report {shlex.quote(str(path))}"
            kept = f"; what a results.json has is shown by: {command}" if path.suffix == ".json" else ""
            raise UsageError(f"{path}: a folder is needed here, and this is a file{kept}")
        return super().convert(value, param, ctx)


class _Suite(_Path):
    """A suite's file, or the bare name of a shipped one."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete names of shipped suites, then files."""
        from click.shell_completion import CompletionItem

        from pybench.files.shipped import shipped_suites

        names = sorted(path.stem for path in shipped_suites().glob("*.toml") if path.stem.startswith(incomplete))
        return [*map(CompletionItem, names), *super().shell_complete(ctx, param, incomplete)]


class _RunPath(_Path):
    """A run's folder or its results."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete runs of the usual folder, the newest first, then files."""
        from click.shell_completion import CompletionItem

        root = Path(os.environ.get("PYBENCH_RUNS", "runs"))
        runs = sorted(map(str, root.glob("*T*Z-*")), reverse=True)
        matches = [CompletionItem(run) for run in runs if run.startswith(incomplete) or incomplete in Path(run).name]
        return [*matches, *super().shell_complete(ctx, param, incomplete)]


PATH = _Path(path_type=Path)
SUITE = _Suite(path_type=Path)
RUN = _RunPath(path_type=Path)
NAMED_PATH = _Path(path_type=str)
"""The path as given, optionally with a name: ``NODE=PATH``."""
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


def _apart(
    _ctx: click.Context, _param: click.Parameter, outputs: tuple[tuple[str, Path], ...]
) -> tuple[tuple[str, Path], ...]:
    require_apart((f"-o {name}", file) for name, file in outputs if str(file) != "-")
    return outputs


outputs_option = click.option(
    "-o", "--output", "outputs", type=_Output(), multiple=True, metavar="FORMAT=FILE", callback=_apart,
    help=f"Write the result there, too; - is standard output. FORMAT: {', '.join(OUTPUTS)}. Repeatable.",
)  # fmt: skip
format_option = click.option(
    "--format", "name", type=click.Choice(("terminal", "json")), default="terminal", show_default=True,
    help="What to print.",
)  # fmt: skip
across_option = click.option(
    "--across", multiple=True, metavar="KEY",
    help="A key in which runs may differ: driver, kernel, software, a package, settings, ... Repeatable.",
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


_DEFAULTS = {"runs": "root", "engine": "engine", "python": "python"}
"""Keys, with the parameter of ``pybench run`` and ``pybench plan`` that each is for."""


def read_defaults(folder: Path) -> dict[str, str]:
    """Defaults in ``pybench.toml``, else in ``[tool.pybench]`` of ``pyproject.toml``. Raises ``FileError``."""
    import tomllib

    from pybench.files.toml_file import MAX_FILE_BYTES, describe, refuse, valid_text

    for file, keys in ((folder / "pybench.toml", ()), (folder / "pyproject.toml", ("tool", "pybench"))):
        try:
            table = tomllib.loads(read_named(file, MAX_FILE_BYTES).decode())
        except OSError:
            continue
        except ValueError as error:
            if keys:  # another tool's file, which that tool reports
                continue
            raise refuse(file, str(error), kind="syntax") from error
        for key in keys:
            table = table.get(key, {}) if isinstance(table, dict) else {}
        for key, value in table.items():
            if key not in _DEFAULTS:
                raise refuse(file, f"unknown key {describe(key)}{valid_text(key, _DEFAULTS)}", kind="schema")
            if not isinstance(value, str):
                raise refuse(file, f"{key}: found {describe(value)}, expected a string", kind="schema")
        if table:
            return {_DEFAULTS[key]: value for key, value in table.items()}
    return {}
