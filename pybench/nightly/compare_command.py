"""``pybench compare``: a run against earlier runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.params import FOLDER, PATH, RUN, across_option, effects_of, outputs_option, smallest_option
from pybench.nightly.values import INCOMPARABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pybench.model.figures import ChangeVerdict, RunComparison, RunFigures


EXIT_CODES: dict[ChangeVerdict, int] = {
    "unchanged": 0,
    "improved": 0,
    "regressed": 1,
    "not measured": 1,
    "differs": 5,
    "undecided": 4,
    "incomparable": INCOMPARABLE,
}


@click.command()
@click.argument("run_path", metavar="RUN", type=RUN)
@click.argument("reference_paths", metavar="REFERENCE...", type=PATH, nargs=-1, required=True)
@across_option
@smallest_option
@click.option(
    "--history", "folder", type=FOLDER, metavar="DIR",
    help="Runs of this machine, such as those of --aa: with one REFERENCE they show the spread between runs.",
)  # fmt: skip
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
    """Compare RUN with earlier runs, row by row.

    Each is a run's folder or its results.json.
    """
    from dataclasses import asdict

    from pybench.cli.io import write_outputs
    from pybench.core.keys import run_figures
    from pybench.files.run.results_file import results_of
    from pybench.model.errors import UsageError
    from pybench.model.workloads.registry import METRICS
    from pybench.nightly.comparison import compare as compare_runs
    from pybench.nightly.comparison_text import judged
    from pybench.nightly.history import read_history

    if unknown := [name for name in metrics if name not in METRICS]:
        raise UsageError(f"--metric {unknown[0]}: no such metric; docs/workloads.md lists them")
    run, *references = (run_figures(results_of(path), metrics) for path in (run_path, *reference_paths))
    others = read_history(folder).runs if folder else ()
    found = compare_runs(run, references, across=across, effects=effects_of(smallest), others=others)
    print_comparison(found, run, references, detail=detail)
    points = [point for one in (*references, run) for point in one.points]
    write_outputs(outputs, judged(found, points), asdict(found))
    ctx.exit(EXIT_CODES[found.verdict])


def comparison_report(run_path: Path, reference_paths: Sequence[Path], name: str, *, detail: bool) -> str:
    """``pybench report`` of a run against references, in the format ``name``: a page, or text for the terminal."""
    from pybench.cli.io import terminal_options
    from pybench.core.keys import run_figures
    from pybench.files.run.results_file import results_of
    from pybench.nightly.comparison import compare as compare_runs
    from pybench.nightly.comparison_page import render as render_page
    from pybench.nightly.comparison_text import render

    run, *references = (run_figures(results_of(path)) for path in (run_path, *reference_paths))
    comparison = compare_runs(run, references)
    if name == "html":
        return render_page(comparison, run, references)
    points = [point for one in (*references, run) for point in one.points]
    return render(comparison, points, detail=detail, **terminal_options())


def print_comparison(found: RunComparison, run: RunFigures, references: Sequence[RunFigures], *, detail: bool) -> None:
    """Print a comparison at the terminal's width."""
    from pybench.cli.io import echo, terminal_options
    from pybench.nightly.comparison_text import render

    points = [point for one in (*references, run) for point in one.points]
    echo(render(found, points, detail=detail, **terminal_options()), nl=False)
