"""``pybench ci``: a nightly workflow for a CI system."""

from __future__ import annotations

from pathlib import Path

import click

from pybench.cli.duration import Duration


@click.command()
@click.argument("system", type=click.Choice(("github", "gitlab", "jenkins")))
@click.option("--suite", metavar="SUITE", required=True, help="File in the repository, or name of a shipped suite.")
@click.option("--runner", metavar="LABEL", default="gpu", show_default=True, help="Label of the machines with GPUs.")
@click.option("--gpus", type=click.IntRange(0, 1024), default=1, show_default=True, help="GPUs that must be there.")
@click.option("--schedule", metavar="CRON", default="17 2 * * *", show_default=True, help="When it runs, in UTC.")
@click.option("--time-limit", "time_limit_s", type=Duration(), metavar="TIME", default="2h", show_default=True,
              help="Time for all attempts of the run.")  # fmt: skip
@click.option("--branch", metavar="NAME", default="pybench-history", show_default=True, help="Keeps each night.")
def ci(system: str, suite: str, runner: str, gpus: int, schedule: str, time_limit_s: float, branch: str) -> None:
    """Print a nightly workflow for a machine of your own.

    It runs SUITE and judges it against earlier nights.
    """
    from pybench.files.shipped import find_suite, is_bare
    from pybench.report.ci.workflow import Workflow, render

    workflow = Workflow(
        suite=suite, runner=runner, gpus=gpus, schedule=schedule, time_limit_s=time_limit_s, branch=branch
    )
    text = render(system, workflow)
    named = Path(suite)
    if is_bare(named):
        find_suite(named)
    elif not named.exists():
        click.echo(f"pybench: {suite}: not here; the workflow looks for it in the repository", err=True)
    click.echo(text, nl=False)
