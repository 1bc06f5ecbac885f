"""Every report format by its name, and the file each run keeps it in.

This list is light: the command line takes its choices from it. A format's module is imported when the format is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

if TYPE_CHECKING:
    from pybench.report.run.view import RunView


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format, in ``pybench.report.MODULE``.

    ``output`` is what the module offers. ``text``: ``render(view, **options) -> str``. ``bytes``: ``render(view) ->
    bytes``. ``folder``: ``export(view, folder) -> str``; it writes files and returns a sentence about them. ``file`` is
    the report's name in a run's folder, ``None`` where that keeps none.
    """

    name: str
    module: str
    output: Literal["text", "bytes", "folder"] = "text"
    file: str | None = None


_LIST = (
    Format(name="terminal", module="run.terminal"),
    Format(name="json", module="run.results_json", file="results.json"),
    Format(name="json-line", module="export.json_line"),
    Format(name="junit", module="export.junit", file="junit.xml"),
    Format(name="markdown", module="run.markdown", file="summary.md"),
    Format(name="html", module="page.render", file="report.html"),
    Format(name="perfetto", module="export.perfetto", output="bytes"),
    Format(name="github-annotations", module="export.annotations"),
    Format(name="csv", module="export.comma_separated"),
    Format(name="openmetrics", module="export.openmetrics"),
    Format(name="pytest-benchmark", module="export.pytest_benchmark"),
    Format(name="bencher", module="export.trackers"),
    Format(name="github-benchmark", module="export.trackers", output="folder"),
)
FORMATS = {entry.name: entry for entry in _LIST}
TEXTS = tuple(entry.name for entry in _LIST if entry.output == "text")
"""Formats that can be printed."""
REPORT_FILES = {entry.name: entry.file for entry in _LIST if entry.file is not None}


def render(view: RunView, name: str, **options: object) -> str:
    """Render ``view`` in the text format ``name``; ``options`` are that format's own."""
    return cast("str", _module(name).render(view, **options))


def render_bytes(view: RunView, name: str) -> bytes:
    """Render ``view`` in the binary format ``name``."""
    return cast("bytes", _module(name).render(view))


def export(view: RunView, name: str, folder: Path) -> str:
    """Write the files of the folder format ``name`` below ``folder``; returns a sentence about them."""
    return cast("str", _module(name).export(view, folder))


def _module(name: str) -> Any:  # noqa: ANN401 - modules are typed loosely
    return import_module(f"pybench.report.{FORMATS[name].module}")
