"""Every report by its name, and the file each run keeps it in."""

from __future__ import annotations

from collections.abc import Callable

from pybench.model.results import Results
from pybench.report import junit, machine, markdown, terminal

FORMATS: dict[str, Callable[..., str]] = {
    "terminal": terminal.render,
    "json": machine.render,
    "junit": junit.render,
    "markdown": markdown.render,
}
REPORT_FILES = {"json": "results.json", "junit": "junit.xml", "markdown": "summary.md"}


def render(results: Results, name: str, **options: object) -> str:
    """Render ``results`` in the format ``name``; ``options`` are that format's own."""
    return FORMATS[name](results, **options)
