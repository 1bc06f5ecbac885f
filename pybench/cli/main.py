"""The ``pybench`` command: each subcommand is a few lines that call the floors below.

Heavy rooms are imported inside the commands, so that ``pybench --help`` costs little more than click.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from pybench.cli.compare import compare
from pybench.cli.error_boundary import ErrorBoundary
from pybench.cli.evidence import bundle, verify
from pybench.cli.expect import expect
from pybench.cli.explain import explain
from pybench.cli.images import images
from pybench.cli.power import power
from pybench.cli.report import report
from pybench.engines.registry import ENGINES

_SUITE = click.Path(path_type=Path)
_RUN = click.Path(path_type=Path, file_okay=False)
_OBJECTS_BETWEEN_COLLECTIONS = 100_000


@click.group(cls=ErrorBoundary, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pybench")
def main() -> None:
    """Prove that N GPUs give the speedup they should, at the energy they should."""
    # A long run's records hold no cycles: looking for some over and over is a fifth of what its report costs.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


main.add_command(power)
main.add_command(report)


_PLAN_OPTIONS = ("profile", "keep", "max_gpus", "require", "attempts", "steps")


def _plan_options(command: Any) -> Any:  # noqa: ANN401 - click decorators are typed loosely
    for option in (
        click.option("--steps", type=click.IntRange(1, 10_000), help="Measured steps of each attempt."),
        click.option("--attempts", type=click.IntRange(1, 100), help="Attempts at each point, and no more."),
        click.option("--require", metavar="WHAT", help="What must be here, such as gpus=8,backend=vllm; else missing."),
        click.option("--max-gpus", type=click.IntRange(1), help="Leave out points that need more GPUs than this."),
        click.option("-k", "keep", metavar="EXPR", help="Keep the points whose id matches, as in pytest -k."),
        click.option("--profile", metavar="NAME", help="Profile to apply; default: the machine's own, if there."),
    ):
        command = option(command)
    return command


def _engine_options(command: Any) -> Any:  # noqa: ANN401 - click decorators are typed loosely
    for option in (
        click.option("--python", metavar="PATH", help="Python that has the backends, for engine none; default: this."),
        click.option("--lock", type=_SUITE, metavar="FILE", help="Lock of images instead of the one that comes along."),
        click.option("--allow-unpinned", is_flag=True, help="Run an image that is not locked; the run can't pass."),
        click.option("--image", metavar="NAME", help="Image of the lock to use instead of the backend's own."),
        click.option(
            "--engine",
            type=click.Choice(("auto", *ENGINES)),
            default="auto",
            show_default=True,
            help="Container engine; auto takes one that has the images, else none.",
        ),
    ):
        command = option(command)
    return command


@main.command()
@click.argument("suite", type=_SUITE, required=False)
@_plan_options
@click.option("--resume", type=_RUN, metavar="RUN", help="Finish an interrupted run instead of starting one.")
@click.option("--runs", "root", type=_RUN, default=Path("runs"), show_default=True, help="Folder of run folders.")
@click.option("-v", "--verbose", "detail", is_flag=True, help="Print every table, not only one row a point.")
@_engine_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    detail: bool,
    suite: Path | None,
    resume: Path | None,
    root: Path,
    **options: Any,  # noqa: ANN401 - those of _plan_options and the fields of EngineOptions
) -> None:
    """Run SUITE, judge it, and exit with its verdict."""
    from pybench.cli.exit_codes import BY_VERDICT, INTERRUPTED
    from pybench.cli.output import echo
    from pybench.cli.progress import make_progress
    from pybench.cli.report import print_terminal_report, write_report_files
    from pybench.engines.choice import choose_launcher
    from pybench.engines.requirements import EngineOptions
    from pybench.machine.disk import disk_error
    from pybench.model.errors import UsageError
    from pybench.report.run_view import RunView
    from pybench.runner.machine_trouble import resume_remedy
    from pybench.runner.prepare import prepare_run, resume_run

    progress = make_progress(sys.stderr)
    chosen = {name: options.pop(name) for name in _PLAN_OPTIONS}
    choose = partial(choose_launcher, EngineOptions(**options), notify=progress.note)
    if (suite is None) == (resume is None):
        raise UsageError("run takes either a SUITE or --resume RUN")
    if suite is not None:
        job = prepare_run(suite, root, choose, **chosen)
    elif resume is not None:
        if any(value is not None for value in chosen.values()):
            raise UsageError("--resume continues the run's plan: leave out --profile, -k, --max-gpus, --require, ...")
        job = resume_run(resume, choose)
    for fault in job.manifest.machine.gpu_faults:
        progress.note(f"{fault}; left out")
    interrupted = False
    try:
        results = job.finish(progress)
    except KeyboardInterrupt:
        interrupted, results = True, job.results()
    view = RunView.of_folder(job.folder, results)
    with disk_error(job.folder.path, *resume_remedy(job.folder.path)):
        write_report_files(job.folder, view)
    print_terminal_report(view, detail=detail)
    echo(f"run folder: {job.folder.path}")
    if interrupted:
        click.echo(f"pybench: interrupted; go on with: pybench run --resume {job.folder.path}", err=True)
    ctx.exit(INTERRUPTED if interrupted else BY_VERDICT[results.verdict])


@main.command()
@click.argument("suite", type=_SUITE)
@_plan_options
def plan(suite: Path, **chosen: Any) -> None:  # noqa: ANN401 - the plan's options
    """Print the points SUITE expands to here, without running them."""
    from pybench.machine.environment import snapshot
    from pybench.report.plan import render
    from pybench.runner.prepare import plan_suite

    machine = snapshot()
    for fault in machine.gpu_faults:
        click.echo(f"pybench: {fault}; left out", err=True)
    click.echo(render(*plan_suite(suite, machine, **chosen)), nl=False)


@main.command()
@click.option("--results", is_flag=True, help="The schema of results.json instead of suite files.")
def schema(results: bool) -> None:
    """Print the JSON Schema of suite files, for editors."""
    import json

    from pybench.report.machine import results_schema
    from pybench.store.suite.file import suite_schema

    click.echo(json.dumps(results_schema() if results else suite_schema(), indent=2))


@main.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Say what this machine has and lacks for pybench, each with its remedy."""
    from pybench.cli.exit_codes import MACHINE
    from pybench.engines.doctor import examine_containers
    from pybench.machine.doctor import examine
    from pybench.machine.environment import snapshot
    from pybench.report.doctor import render

    findings = (*examine(), *examine_containers(snapshot()))
    click.echo(render(findings), nl=False)
    ctx.exit(MACHINE if any(finding.state == "missing" for finding in findings) else 0)


main.add_command(compare)
main.add_command(images)
main.add_command(expect)
main.add_command(explain)
main.add_command(bundle)
main.add_command(verify)
