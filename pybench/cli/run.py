"""``pybench run`` and ``pybench plan``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from pybench.cli.duration import Duration
from pybench.engines.registry import ENGINES

_SUITE = click.Path(path_type=Path)
_RUN = click.Path(path_type=Path, file_okay=False)
_PLAN_OPTIONS = ("profile", "keep", "max_gpus", "require", "attempts", "steps", "settings", "time_limit_s")


_SET = "Replace a setting: batch_size=1, benchmark.decode.attempts=5. Repeatable."
_TIME_LIMIT = "Time for all attempts, such as 20m; what does not fit is left out and named."


def _plan_options(command: Any) -> Any:  # noqa: ANN401 - click decorators are typed loosely
    for option in (
        click.option("--runs", "root", type=_RUN, default=Path("runs"), show_default=True, help="Folder of runs."),
        click.option("--time-limit", "time_limit_s", type=Duration(), metavar="TIME", help=_TIME_LIMIT),
        click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help=_SET),
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


@click.command()
@click.argument("suite", type=_SUITE, required=False)
@_plan_options
@click.option("--resume", type=_RUN, metavar="RUN", help="Finish an interrupted run instead of starting one.")
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
    from pybench.model.plan_options import PlanOptions
    from pybench.report.run_view import RunView
    from pybench.runner.machine_trouble import resume_remedy
    from pybench.runner.prepare import prepare_run, resume_run

    progress = make_progress(sys.stderr)
    chosen = PlanOptions(**{name: options.pop(name) for name in _PLAN_OPTIONS})
    choose = partial(choose_launcher, EngineOptions(**options), notify=progress.note)
    if (suite is None) == (resume is None):
        raise UsageError("run takes either a SUITE or --resume RUN")
    if suite is not None:
        job = prepare_run(suite, root, choose, chosen)
    elif resume is not None:
        job = resume_run(resume, choose, chosen)
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


@click.command()
@click.argument("suite", type=_SUITE)
@_plan_options
def plan(suite: Path, root: Path, **chosen: Any) -> None:  # noqa: ANN401 - the plan's options
    """Print the points SUITE expands to here, without running them."""
    from pybench.machine.environment import snapshot
    from pybench.model.plan_options import PlanOptions
    from pybench.report.plan import render
    from pybench.runner.prepare import plan_suite

    machine = snapshot()
    for fault in machine.gpu_faults:
        click.echo(f"pybench: {fault}; left out", err=True)
    click.echo(render(*plan_suite(suite, machine, PlanOptions(**chosen), root)), nl=False)
