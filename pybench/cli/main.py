"""The ``pybench`` command: each subcommand is a few lines that call the floors below.

Heavy rooms are imported inside the commands, so that ``pybench --help`` costs little more than click.
"""

from __future__ import annotations

import gc

import click

from pybench.cli.ci import ci
from pybench.cli.error_boundary import ErrorBoundary
from pybench.cli.expect import expect
from pybench.cli.images import images
from pybench.cli.report import report
from pybench.cli.run import plan, run
from pybench.evidence.command import bundle, verify
from pybench.explain.command import explain
from pybench.fleet.command import fleet
from pybench.nightly.compare_command import compare
from pybench.nightly.gate_command import gate
from pybench.nightly.history_command import history
from pybench.power.command import power

_OBJECTS_BETWEEN_COLLECTIONS = 100_000


@click.group(cls=ErrorBoundary, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pybench")
def main() -> None:
    """Prove that N GPUs give the speedup they should, at the energy they should."""
    # A long run's records hold no cycles: looking for some over and over is a fifth of what its report costs.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


main.add_command(run)
main.add_command(plan)
main.add_command(power)
main.add_command(report)


@main.command()
@click.option("--results", is_flag=True, help="The schema of results.json instead of suite files.")
def schema(results: bool) -> None:
    """Print the JSON Schema of suite files, for editors."""
    import json

    from pybench.files.suite.file import suite_schema
    from pybench.report.run.results_json import results_schema

    click.echo(json.dumps(results_schema() if results else suite_schema(), indent=2))


@main.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Report what this machine has and lacks, each with its remedy."""
    from pybench.cli.exit_codes import MACHINE
    from pybench.cli.output import echo, terminal_options
    from pybench.machine.doctor import examine
    from pybench.machine.environment import snapshot
    from pybench.report.doctor import render
    from pybench.run.engines.doctor import examine_containers

    findings = (*examine(), *examine_containers(snapshot()))
    echo(render(findings, width=terminal_options()["width"]), nl=False)
    ctx.exit(MACHINE if any(finding.state == "missing" for finding in findings) else 0)


main.add_command(compare)
main.add_command(history)
main.add_command(gate)
main.add_command(fleet)
main.add_command(ci)
main.add_command(images)
main.add_command(expect)
main.add_command(explain)
main.add_command(bundle)
main.add_command(verify)
