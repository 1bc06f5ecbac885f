"""``pybench history``: a folder of runs by time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.params import FILE, FOLDER, across_option, effects_of, format_option, smallest_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybench.model.figures import SmallestEffects
    from pybench.nightly.series import Series
    from pybench.nightly.values import Accepted


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--suite", metavar="NAME", help="Suite to show; default: that of the newest run.")
@across_option
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write a page with every trend there, too.")
@click.option(
    "--accepted", type=FILE, metavar="FILE",
    help="Accepted changes, for --html and --self-test; default: accepted.toml, if there.",
)  # fmt: skip
@smallest_option
@format_option
@click.option("--self-test", is_flag=True, help="What the gate finds on this machine, and its false alarms.")
@click.option("--csv", "as_csv", is_flag=True, help="Every figure of every run as CSV, for pandas or DuckDB.")
def history(
    folder: Path,
    suite: str | None,
    across: tuple[str, ...],
    html_file: Path | None,
    accepted: Path | None,
    smallest: tuple[str, ...],
    name: str,
    self_test: bool,
    as_csv: bool,
) -> None:
    """Show how each row of a suite went over the runs in DIR.

    The machine is that of the newest run.
    """
    from pybench.cli.io import echo, json_text, terminal_options
    from pybench.core.keys import check_across
    from pybench.model.errors import RunFolderError
    from pybench.nightly.gate_command import accepted_changes
    from pybench.nightly.history import read_history
    from pybench.nightly.history_text import csv_text, no_run, render, suite_history
    from pybench.nightly.series import nights, series_of

    _check_options(accepted, html_file, smallest, self_test=self_test, as_csv=as_csv)
    found = read_history(folder)
    runs = [run for run in found.runs if suite in {None, run.suite}]
    if not runs:
        raise RunFolderError(no_run(found, suite))
    check_across(across, {name for run in runs for name in run.keys})
    if as_csv:
        echo(csv_text(runs), nl=False)
    if as_csv and html_file is None:
        return
    shown = nights(runs) or tuple(run for run in runs if self_test and run.part_of == "aa")
    if not shown:
        what = (
            "run of --ab or --aa, which is no night" if len(runs) == 1 else "runs of --ab or --aa, which are no nights"
        )
        raise RunFolderError(f"{folder}: {len(runs)} {what}; run the suite without these")
    series = series_of(shown, shown[-1], across)
    if self_test:
        print_self_test(series, accepted_changes(accepted), effects_of(smallest))
    elif name == "json":
        echo(json_text(asdict(suite_history(series))), nl=False)
    elif not as_csv:
        echo(render(found, series, **terminal_options()), nl=False)
    if html_file is not None:
        from pybench.cli.io import write_bytes, write_shown
        from pybench.nightly.history_page import render as render_page

        write = write_bytes if as_csv else write_shown  # CSV is read by a program
        write(html_file, render_page(found, series, accepted_changes(accepted)).encode())


def _check_options(
    accepted: Path | None, html_file: Path | None, smallest: tuple[str, ...], *, self_test: bool, as_csv: bool
) -> None:
    """Raise ``UsageError`` for an option that has no effect beside the others."""
    from pybench.model.errors import UsageError

    if accepted is not None and html_file is None and not self_test:
        raise UsageError("--accepted is for --html and --self-test: give one of them, too, or leave it out")
    if smallest and not self_test:
        raise UsageError("--smallest is for --self-test: give both, or neither")
    if as_csv and self_test:
        raise UsageError("--csv and --self-test both print to standard output: give one of them")


def print_self_test(series: Series, accepted: Sequence[Accepted] = (), effects: SmallestEffects | None = None) -> None:
    """Print what the gate finds by these runs, and how often it would be wrong."""
    from pybench.cli.io import echo, terminal_options
    from pybench.nightly.self_test import last_accepted, self_test
    from pybench.nightly.self_test_text import render

    if series.last.part_of is not None:
        echo(f"runs of --{series.last.part_of}, taken within hours; nights differ by more")
    found, since = self_test(series, accepted, effects), last_accepted(series, accepted)
    echo(render(found, series.last.suite, since=since, **terminal_options()), nl=False)
