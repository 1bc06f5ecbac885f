"""``pybench explain``: a run beside what a node's own figures predict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pybench.model.explanation import Explanation

_RUN = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("run_folder", metavar="RUN", type=_RUN)
@click.option("--node", "node_folder", metavar="RUN", type=_RUN, required=True, help="A run of node_check here.")
def explain(run_folder: Path, node_folder: Path) -> None:
    """Show RUN's speedups beside those that the node's own figures predict, and what each shortfall is made of."""
    from shutil import get_terminal_size

    from pybench.report.explanation import render

    found = explanation_of(run_folder, node_folder)
    width = get_terminal_size().columns
    click.echo(render(found, width=width, color=sys.stdout.isatty()), nl=False)


def explanation_of(run_folder: Path, node_folder: Path) -> Explanation:
    """A run's folder beside the predictions from that of a node's run."""
    from pybench.judge.explanation.explanation import explain as explain_run
    from pybench.judge.measurements import Measurements
    from pybench.store.journal import RunFolder

    run, node = RunFolder.open(run_folder), RunFolder.open(node_folder)
    manifest, node_manifest = run.read_manifest(), node.read_manifest()
    return explain_run(
        manifest,
        Measurements.of(manifest.plan, run.records()),
        node_manifest,
        Measurements.of(node_manifest.plan, node.records()),
    )
