"""``pybench gate``: a night judged by the nights before it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.params import FILE, FOLDER, RUN, across_option, effects_of, outputs_option, smallest_option
from pybench.model.text import plural

if TYPE_CHECKING:
    from pybench.model.figures import RunFigures
    from pybench.model.manifest import Manifest
    from pybench.nightly.history import History
    from pybench.nightly.series import Series
    from pybench.nightly.values import Accepted, GateResult

_ACCEPTED = Path("accepted.toml")


@click.command()
@click.argument("run_path", metavar="RUN", type=RUN)
@click.option(
    "--history", "folder", metavar="DIR", type=FOLDER, required=True,
    help="Folder of earlier runs; RUN may be in it.",
)  # fmt: skip
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
    """Judge RUN by the nights in DIR.

    What is slower, or costlier in joules, is named, and measured again where it can be.
    """
    from dataclasses import asdict

    from pybench.cli.io import echo, terminal_options, write_outputs
    from pybench.core.keys import BUILD, check_across, run_figures
    from pybench.files.run.results_file import results_of
    from pybench.model.errors import MachineError, RunFolderError
    from pybench.nightly.acceptance import unused
    from pybench.nightly.confirm import unconfirmed
    from pybench.nightly.gate import judge_night
    from pybench.nightly.gate_text import judged, render
    from pybench.nightly.history import read_history
    from pybench.nightly.history_text import no_run, skipped
    from pybench.nightly.series import nights, series_of
    from pybench.nightly.values import EXIT_CODES

    run = run_figures(results_of(run_path))
    history = read_history(folder)
    if history.skipped and not history.runs:
        raise RunFolderError(no_run(history))
    check_across(across, {name for one in (run, *history.runs) for name in one.keys})
    # A new build of the workers begins no new history: the build of each side is named beside a changed row.
    series = series_of(nights(history.runs), run, (*across, BUILD))
    if series.num_later and not series.has_earlier and run.identity not in history.entries:
        raise MachineError(
            f"{run_path}: its time, {run.created_utc}, is before that of all {series.num_later} runs of {run.suite} in "
            f"{folder}: check the clock"
        )
    changes = accepted_changes(accepted)
    result = judge_night(series, changes, effects_of(smallest))
    result = unconfirmed(result, "--no-rerun") if no_rerun else _confirmed(result, run_path, history, series, python)
    points = [point for one in series.runs for point in one.points]
    unused_lines = (*skipped(history), *unused(changes, run, history.runs))
    echo(render(result, points, unused=unused_lines, detail=detail, **terminal_options()), nl=False)
    write_outputs(outputs, judged(result, points), asdict(result))
    ctx.exit(EXIT_CODES[result.state])


def _confirmed(result: GateResult, run_path: Path, history: History, series: Series, python: str | None) -> GateResult:
    """The result after a rerun of its flagged rows; as it is where none is flagged, or with the reason for no rerun."""
    from functools import partial

    from pybench.cli.progress import make_progress
    from pybench.core.keys import run_figures
    from pybench.files.run.folder import RunFolder
    from pybench.model.errors import PybenchError
    from pybench.nightly.confirm import Rerun, confirm, flagged, reference_of, unconfirmed
    from pybench.nightly.rerun import rerun
    from pybench.run.engines.base import EngineOptions
    from pybench.run.engines.choice import choose_launcher

    rows = flagged(result)
    if not rows:
        return result
    progress = make_progress(sys.stderr)
    choose = partial(choose_launcher, EngineOptions(python=python), notify=progress.note)
    points = {row.row.point_id for row in rows}
    try:
        folder = RunFolder.open(run_path)
        manifest = _manifest(history, reference_of(series, rows))
        progress.note(f"{plural(len(rows), 'row')} flagged; measuring {plural(len(points), 'point')} again")
        again, beside = rerun(folder, points, choose, progress, manifest)
    except PybenchError as error:
        return unconfirmed(result, str(error))
    metrics = {row.row.metric for row in rows}
    found = Rerun(run_figures(again, metrics), run_figures(beside, metrics) if beside else None)
    return confirm(result, found)


def _manifest(history: History, run: RunFigures | None) -> Manifest | None:
    """Manifest of a reference, where the history keeps its folder, and this user wrote it: it names images to run."""
    from pybench.files.run.folder import RunFolder
    from pybench.model.errors import RunFolderError

    if run is None:
        return None
    try:
        folder = RunFolder.open(history.path(run))
        folder.require_owner()
        return folder.read_manifest()
    except RunFolderError:
        return None


def accepted_changes(path: Path | None) -> tuple[Accepted, ...]:
    """Those of a file, by default of accepted.toml if there is one. Raises ``FileError``."""
    from pybench.nightly.accepted import read_accepted

    if path is None and not _ACCEPTED.exists():
        return ()
    return read_accepted(path or _ACCEPTED)
