"""``pybench explain``: a run against the prediction from the node's own rates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.params import FOLDER, PATH

if TYPE_CHECKING:
    from pybench.explain.values import Explanation
    from pybench.files.run.folder import RunFolder
    from pybench.model.manifest import Manifest

_NODE = "A run of node_check here, or its results.json; default: the latest in RUN's folder."


@click.command()
@click.argument("run_folder", metavar="RUN", type=FOLDER)
@click.option("--node", "node_path", metavar="RUN", type=PATH, help=_NODE)
def explain(run_folder: Path, node_path: Path | None) -> None:
    """Split each shortfall of RUN's speedups into its causes.

    Compares each speedup, and each baseline's step, with the prediction from the node's own rates.
    """
    from pybench.cli.io import echo, terminal_options
    from pybench.explain.text import render
    from pybench.files.run.folder import RunFolder
    from pybench.report.text.labels import short_labels

    run = RunFolder.open(run_folder)
    manifest = run.read_manifest()
    explanation = explanation_of(run, manifest, node_path)
    names = short_labels(manifest.plan.points, with_benchmark=True)
    echo(render(explanation, names, **terminal_options()), nl=False)


def explanation_of(run: RunFolder, manifest: Manifest, node_path: Path | None) -> Explanation:
    """A run explained by a node's run, given by folder or results; default: the latest in the run's folder.

    Raises ``UsageError`` where the run measured a node itself, or has nothing to explain.
    """
    import shlex

    from pybench.core.measurements import Measurements
    from pybench.explain.explanation import explain as explain_run
    from pybench.explain.node_run import latest_node_run, measured_node
    from pybench.model.errors import UsageError
    from pybench.model.workloads.traits import NodeSettings

    points = manifest.plan.points
    if points and all(isinstance(point.settings, NodeSettings) for point in points):
        command = f"pybench explain OTHER --node {shlex.quote(str(run.path))}"
        raise UsageError(f"{run.path}: a node check itself; give a run with speedups: {command}")
    node = measured_node(node_path or latest_node_run(run.path, manifest.fingerprint))
    return explain_run(manifest, Measurements.of(manifest.plan, run.journal.records()), node)
