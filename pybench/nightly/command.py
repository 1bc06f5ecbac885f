"""``pybench compare``, ``gate`` and ``history``: runs against references, a night against nights, a folder by time."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from pybench.cli.io import echo, json_text, terminal_options, write_bytes, write_outputs, write_shown
from pybench.cli.params import (
    FILE,
    FOLDER,
    PATH,
    RUN,
    across_option,
    effects_of,
    format_option,
    outputs_option,
    smallest_option,
)
from pybench.model.errors import MachineError, RunFolderError, UsageError


@click.command()
@click.argument("run_path", metavar="RUN", type=RUN)
@click.argument("reference_paths", metavar="REFERENCE...", type=PATH, nargs=-1, required=True)
@across_option
@smallest_option
@click.option("--history", "folder", type=FOLDER, metavar="DIR",
              help="Runs of this machine, as by --aa: with one REFERENCE they show the spread of runs.")  # fmt: skip
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="A further metric to compare. Repeatable.")
@outputs_option
@click.option("-v", "--verbose", "detail", is_flag=True, help="Print the rows that are unchanged, too.")
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    *,
    run_path: Path,
    reference_paths: tuple[Path, ...],
    across: tuple[str, ...],
    smallest: tuple[str, ...],
    folder: Path | None,
    metrics: tuple[str, ...],
    outputs: tuple[tuple[str, Path], ...],
    detail: bool,
) -> None:
    """Compare RUN with earlier runs, row by row. Each is a run's folder or its results.json."""
    from pybench.core.keys import run_figures
    from pybench.files.run.results_file import results_of
    from pybench.model.workloads.registry import METRICS
    from pybench.nightly.comparison import EXIT_CODES
    from pybench.nightly.comparison import compare as compare_runs
    from pybench.nightly.comparison_text import judged, render
    from pybench.nightly.history import read_history

    if unknown := [name for name in metrics if name not in METRICS]:
        raise UsageError(f"--metric {unknown[0]}: no such metric; docs/workloads.md lists them")
    run, *references = (run_figures(results_of(path), metrics) for path in (run_path, *reference_paths))
    others = read_history(folder).runs if folder else ()
    comparison = compare_runs(run, references, across=across, effects=effects_of(smallest), others=others)
    echo(render(comparison, (*references, run), detail=detail, **terminal_options()), nl=False)
    write_outputs(outputs, judged(comparison, (*references, run)), asdict(comparison))
    ctx.exit(EXIT_CODES[comparison.verdict])


@click.command()
@click.argument("run_path", metavar="RUN", type=RUN)
@click.option("--history", "folder", metavar="DIR", type=FOLDER, required=True, help="Earlier runs; RUN may be in it.")
@click.option("--accepted", metavar="FILE", type=FILE, help="Accepted changes; default: accepted.toml, if there.")
@across_option
@smallest_option
@click.option("--no-rerun", is_flag=True, help="Confirm no flagged row by measuring its point again.")
@click.option("--python", metavar="PATH", help="Python for reruns without a container; default: this.")
@outputs_option
@click.option("-v", "--verbose", "detail", is_flag=True, help="Print the rows that pass, too.")
@click.pass_context
def gate(
    ctx: click.Context,
    /,
    *,
    run_path: Path,
    folder: Path,
    accepted: Path | None,
    across: tuple[str, ...],
    smallest: tuple[str, ...],
    no_rerun: bool,
    python: str | None,
    outputs: tuple[tuple[str, Path], ...],
    detail: bool,
) -> None:
    """Judge RUN by the nights in DIR. It names rows that are slower or need more joules, and measures them again."""
    from pybench.core.keys import BUILD, check_across, run_figures
    from pybench.files.run.results_file import results_of
    from pybench.nightly.accepted import read_accepted, unused
    from pybench.nightly.gate import judge_night
    from pybench.nightly.gate_text import judged, render
    from pybench.nightly.history import nights, read_history, series_of
    from pybench.nightly.history_text import no_run, skipped
    from pybench.nightly.rerun import confirmed, unconfirmed
    from pybench.nightly.values import EXIT_CODES

    run = run_figures(results_of(run_path))
    past = read_history(folder)
    if past.skipped and not past.runs:
        raise RunFolderError(no_run(past))
    check_across(across, {name for figures in (run, *past.runs) for name in figures.keys})
    # A new build of the workers begins no new history: the build of each side is named beside a changed row.
    series = series_of(nights(past.runs), run, (*across, BUILD))
    if series.num_later and not series.has_earlier and run.identity not in past.entries:
        raise MachineError(
            f"{run_path}: its time, {run.created_utc}, is before that of all {series.num_later} runs of {run.suite} in "
            f"{folder}: check the clock"
        )
    changes = read_accepted(accepted)
    result = judge_night(series, changes, effects_of(smallest))
    result = unconfirmed(result, "--no-rerun") if no_rerun else confirmed(result, run_path, past, series, python)
    unused_lines = (*skipped(past), *unused(changes, run, past.runs))
    echo(render(result, series.runs, unused=unused_lines, detail=detail, **terminal_options()), nl=False)
    write_outputs(outputs, judged(result, series.runs), asdict(result))
    ctx.exit(EXIT_CODES[result.state])


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option("--suite", metavar="NAME", help="Suite to show; default: that of the newest run.")
@across_option
@click.option("--html", "html_file", type=FILE, metavar="FILE", help="Write a page with every trend there, too.")
@click.option("--accepted", type=FILE, metavar="FILE", help="Accepted changes, for --html; default: accepted.toml.")
@format_option
@click.option("--csv", "as_csv", is_flag=True, help="Every figure of every run as CSV, for pandas or DuckDB.")
def history(
    folder: Path,
    suite: str | None,
    across: tuple[str, ...],
    html_file: Path | None,
    accepted: Path | None,
    name: str,
    as_csv: bool,
) -> None:
    """Show how each row of a suite went over the runs in DIR.

    The machine is that of the newest run. Without nights, the runs of --aa are shown.
    """
    from pybench.core.keys import check_across
    from pybench.nightly.accepted import read_accepted
    from pybench.nightly.history import nights, read_history, series_of
    from pybench.nightly.history_text import csv_text, no_run, render, suite_history

    if accepted is not None and html_file is None:
        raise UsageError("--accepted is for --html: give both, or neither")
    past = read_history(folder)
    runs = [run for run in past.runs if suite in {None, run.suite}]
    if not runs:
        raise RunFolderError(no_run(past, suite))
    check_across(across, {name for run in runs for name in run.keys})
    if as_csv:
        echo(csv_text(runs), nl=False)
    if as_csv and html_file is None:
        return
    shown = nights(runs) or tuple(run for run in runs if run.part_of == "aa")
    if not shown:
        are = ("run", "is no night") if len(runs) == 1 else ("runs", "are no nights")
        what = f"{are[0]} of --ab, which {are[1]}"
        raise RunFolderError(f"{folder}: {len(runs)} {what}; run the suite without these")
    series = series_of(shown, shown[-1], across)
    if name == "json":
        echo(json_text(asdict(suite_history(series))), nl=False)
    elif not as_csv:
        echo(render(past, series, **terminal_options()), nl=False)
    if html_file is not None:
        from pybench.nightly.history_page import render as render_page

        write = write_bytes if as_csv else write_shown  # CSV is read by a program
        write(html_file, render_page(past, series, read_accepted(accepted)).encode())
