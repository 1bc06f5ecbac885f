"""``pybench run`` and ``pybench plan``."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from pybench.cli.duration import Duration
from pybench.cli.finish import finish
from pybench.engines.registry import ENGINES

_SUITE = click.Path(path_type=Path)
_RUN = click.Path(path_type=Path, file_okay=False)
_HOST_OPTIONS = ("rendezvous", "nodes", "node_rank", "join_limit_s")
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


def _host_options(command: Any) -> Any:  # noqa: ANN401 - click decorators are typed loosely
    for option in (
        click.option(
            "--join-limit", "join_limit_s", type=Duration(), metavar="TIME", help="Wait for hosts; default: 90s."
        ),
        click.option("--node-rank", type=click.IntRange(0), metavar="N", help="This host's number; 0 leads the run."),
        click.option("--nodes", type=click.IntRange(2, 1024), metavar="N", help="Hosts of the run; with --rendezvous."),
        click.option("--rendezvous", metavar="HOST:PORT", help="Where hosts meet that run this command together."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("suite", type=_SUITE, required=False)
@_plan_options
@click.option("--resume", type=_RUN, metavar="RUN", help="Finish an interrupted run instead of starting one.")
@click.option("--ab", type=(str, str), metavar="A B", help="Two Pythons or images, measured in turn and compared.")
@click.option("--aa", type=click.IntRange(2, 100), metavar="N", help="Repeat the suite N times, as runs of their own.")
@click.option("-v", "--verbose", "detail", is_flag=True, help="Print every table, not only one row a point.")
@_host_options
@_engine_options
@click.pass_context
def run(
    ctx: click.Context,
    /,
    *,
    detail: bool,
    suite: Path | None,
    resume: Path | None,
    ab: tuple[str, str] | None,
    aa: int | None,
    root: Path,
    **options: Any,  # noqa: ANN401 - those of _plan_options, and the fields of HostOptions and EngineOptions
) -> None:
    """Run SUITE, judge it, and exit with its verdict."""
    from pybench.cli.exit_codes import BY_VERDICT, INTERRUPTED
    from pybench.cli.progress import make_progress
    from pybench.cli.run_hosts import HostOptions, engine_over_hosts, gathered
    from pybench.cli.run_several import Several, run_ab, run_again
    from pybench.engines.choice import choose_launcher
    from pybench.engines.requirements import EngineOptions
    from pybench.model.errors import UsageError
    from pybench.model.plan_options import PlanOptions
    from pybench.runner.prepare import prepare_run
    from pybench.runner.resume import resume_run

    progress = make_progress(sys.stderr)
    chosen = PlanOptions(**{name: options.pop(name) for name in _PLAN_OPTIONS})
    hosts = HostOptions(**{name: options.pop(name) for name in _HOST_OPTIONS})
    engine = EngineOptions(**options) if not hosts.given else engine_over_hosts(EngineOptions(**options))
    if sum(given is not None for given in (resume, ab, aa)) > 1 or (suite is None) == (resume is None):
        raise UsageError("run takes either a SUITE, alone or with one of --ab and --aa, or --resume RUN alone")
    if hosts.given and (ab or aa):
        raise UsageError("--rendezvous measures a suite once; leave out --ab and --aa")
    if suite is not None and (ab or aa):
        several = Several(suite, root, chosen, engine, progress)
        ctx.exit(run_ab(several, ab) if ab else run_again(several, aa or 0))
    choose = partial(choose_launcher, engine, notify=progress.note)
    with gathered(hosts, engine, progress.note) as gathering:
        if gathering is None and hosts.given:
            ctx.exit(0)
        if suite is not None:
            job = prepare_run(suite, root, choose, chosen, gathering)
        elif resume is not None:
            job = resume_run(resume, choose, chosen, gathering)
        results, interrupted = finish(job, progress, detail=detail)
        if interrupted and gathering is not None:
            gathering.dismiss("the run was interrupted on the host that leads")
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
    from pybench.runner.suite_plan import earlier_times_s, plan_suite

    machine = snapshot()
    for fault in machine.gpu_faults:
        click.echo(f"pybench: {fault}; left out", err=True)
    options = PlanOptions(**chosen)
    found, points = plan_suite(suite, machine, options, root)
    takes = None if options.time_limit_s is None else earlier_times_s(found, points, machine, root)
    click.echo(render(found, points, takes, machine.gpu_memory_bytes), nl=False)
