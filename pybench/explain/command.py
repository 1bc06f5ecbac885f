"""``pybench explain``: a run against the prediction from the node's own rates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.params import FOLDER, PATH, RUN, format_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybench.core.measurements import Measurements
    from pybench.files.run.folder import RunFolder
    from pybench.model.machine import Machine
    from pybench.model.manifest import Manifest
    from pybench.model.suite import Plan, Point
    from pybench.model.verdict import Prediction

_NODE = "A run of node_check here, or its results.json; default: the latest in RUN's folder."


@click.command()
@click.argument("run_folder", metavar="RUN", type=FOLDER)
@click.option("--node", "node_path", metavar="RUN", type=PATH, help=_NODE)
@format_option
def explain(run_folder: Path, node_path: Path | None, name: str) -> None:
    """Split each shortfall of RUN's speedups into its causes.

    Compares each speedup, and each baseline's step, with the prediction from the node's own rates.
    """
    from dataclasses import asdict

    from pybench.cli.io import echo, json_text, terminal_options
    from pybench.explain.explanation import explanation_of
    from pybench.explain.text import render
    from pybench.files.run.folder import RunFolder
    from pybench.report.text.labels import short_labels

    run = RunFolder.open(run_folder)
    manifest = run.read_manifest()
    explanation = explanation_of(run, manifest, node_path)
    if name == "json":
        echo(json_text(asdict(explanation)), nl=False)
        return
    names = short_labels(manifest.plan.points, with_benchmark=True)
    echo(render(explanation, names, **terminal_options()), nl=False)


@click.command()
@click.argument("path", metavar="RUN", type=RUN)
@click.option("--node", "node_path", metavar="RUN", type=PATH, help="A run of node_check, or its results.json.")
@format_option
@click.option("-v", "--verbose", "detail", is_flag=True, help="Print every table; --format terminal only.")
@click.pass_context
def judge(ctx: click.Context, /, *, path: Path, node_path: Path | None, name: str, detail: bool) -> None:
    """Judge kept results by today's tables, and by predictions from NODE's rates.

    RUN is a run's folder or its results.json. Exits with the verdict, as run does.
    """
    from pybench.cli.exit_codes import BY_VERDICT
    from pybench.cli.io import echo
    from pybench.cli.report import print_terminal_report
    from pybench.explain.judge import judged_again
    from pybench.explain.node import measured_node
    from pybench.files.run.results_file import results_of
    from pybench.report.formats import render
    from pybench.report.run.view import RunView

    kept = results_of(path)
    results = judged_again(kept, None if node_path is None else measured_node(node_path, kept.machine))
    view = RunView(results=results)
    if name == "json":
        echo(render(view, name), nl=False)
    else:
        print_terminal_report(view, detail=detail)
    ctx.exit(BY_VERDICT[results.verdict])


def predictions_of_run(run: RunFolder, manifest: Manifest, measurements: Measurements) -> tuple[Prediction, ...]:
    """Speedups predicted by the rates of the earlier run that the plan names, else by those of the run itself.

    A suite that measures no rates takes those of the latest run on the same machine.
    """
    from pybench.explain.measured_step import groups_of, measured_steps
    from pybench.explain.node import MeasuredNode, has_rates, latest_node_run, measured_node
    from pybench.explain.predictions import predictions
    from pybench.model.errors import RunFolderError

    steps, plan = list(measured_steps(measurements)), manifest.plan
    if all(len(group) == 1 for group in groups_of(steps)):
        return ()
    if plan.rates_run is None and has_rates(plan.points):
        return predictions(steps, MeasuredNode.of_run(manifest, measurements))
    try:
        path = run.path.parent / plan.rates_run if plan.rates_run else latest_node_run(run.path, manifest.fingerprint)
        return predictions(steps, measured_node(path))
    except RunFolderError:
        return ()


def predicts_here(root: Path, machine: Machine, plan: Plan) -> Callable[[Point, Point], bool]:
    """Which speedups are predicted: by rates that the plan measures, or from a run of node_check below ``root``."""
    from pybench.core.provenance import fingerprint, run_fields
    from pybench.explain.node import has_rates, latest_node_run
    from pybench.explain.predictions import band_of
    from pybench.model.errors import RunFolderError

    try:
        if plan.rates_run is None and not has_rates(plan.points):
            latest_node_run(root / "-", fingerprint(run_fields(machine)))
    except (RunFolderError, OSError):
        return lambda _base, _point: False
    return lambda base, point: band_of(base, point) is not None
