"""``pybench run`` and ``pybench plan``."""

from __future__ import annotations

import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pybench.cli.duration import Duration
from pybench.cli.finish import finish, name_resuming
from pybench.cli.path_types import FOLDER, PATH
from pybench.model.plural import plural
from pybench.run.engines.registry import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable

    from pybench.model.machine import Machine
    from pybench.model.plan_options import PlanOptions
    from pybench.model.progress import Progress
    from pybench.run.engines.base import Launcher
    from pybench.run.engines.requirements import EngineOptions, LaunchRequirements
    from pybench.run.hosts.gathering import Gathering
    from pybench.run.loop import Run

_HOST_OPTIONS = ("rendezvous", "nodes", "node_rank", "join_limit_s")
_PLAN_OPTIONS = ("profile", "keep", "max_gpus", "require", "attempts", "steps", "settings", "time_limit_s")


_SET = "Replace a setting: batch_size=1, benchmark.decode.attempts=5. Repeatable."
_KEEP = "Keep the points whose id matches, as in pytest -k."
_TIME_LIMIT = "Time for all attempts, such as 20m; what does not fit is left out and named."


def _once(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The expression. Of several, click would take the last and drop the others without a word."""
    if len(given) > 1:
        both = " or ".join(f"({text})" for text in given)
        raise click.BadParameter(f"given {len(given)} times; give one, such as -k {shlex.quote(both)}")
    return given[0] if given else None


def _plan_options(command: Any) -> Any:  # noqa: ANN401 - click decorators are typed loosely
    for option in (
        click.option("--runs", "root", type=FOLDER, default=Path("runs"), show_default=True, help="Folder of runs."),
        click.option("--time-limit", "time_limit_s", type=Duration(), metavar="TIME", help=_TIME_LIMIT),
        click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help=_SET),
        click.option("--steps", type=click.IntRange(1, 10_000), help="Measured steps of each attempt."),
        click.option("--attempts", type=click.IntRange(1, 100), help="Attempts at each point, and no more."),
        click.option("--require", metavar="WHAT", help="What must be here, such as gpus=8,backend=vllm; else no pass."),
        click.option("--max-gpus", type=click.IntRange(1), help="Leave out points that need more GPUs than this."),
        click.option("-k", "keep", metavar="EXPR", multiple=True, callback=_once, help=_KEEP),
        click.option("--profile", metavar="NAME", help="Profile to apply; default: the machine's own, if there."),
    ):
        command = option(command)
    return command


def _engine_options(command: Any) -> Any:  # noqa: ANN401 - click decorators are typed loosely
    for option in (
        click.option("--python", metavar="PATH", help="Python that has the backends, for engine none; default: this."),
        click.option("--lock", type=PATH, metavar="FILE", help="Lock of images instead of the one that comes along."),
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
@click.argument("suite", type=PATH, required=False)
@click.argument("batch", nargs=-1)
@_plan_options
@click.option("--sbatch", is_flag=True, help="Submit the run to Slurm; options of sbatch come last, behind --.")
@click.option("--resume", type=FOLDER, metavar="RUN", help="Finish an interrupted run instead of starting one.")
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
    sbatch: bool,
    batch: tuple[str, ...],
    root: Path,
    **options: Any,  # noqa: ANN401 - those of _plan_options, and the fields of HostOptions and EngineOptions
) -> None:
    """Run SUITE, judge it, and exit with its verdict."""
    from pybench.cli.progress import make_progress
    from pybench.cli.run_hosts import HostOptions, engine_over_hosts, gathered
    from pybench.cli.run_slurm import over_allocation, submit_batch, verdict_left
    from pybench.model.errors import UsageError
    from pybench.model.plan_options import PlanOptions
    from pybench.nightly.run_several import Several, run_ab, run_again
    from pybench.run.engines.requirements import EngineOptions
    from pybench.run.slurm.allocation import Task

    chosen = PlanOptions(**{name: options.pop(name) for name in _PLAN_OPTIONS})
    hosts = HostOptions(**{name: options.pop(name) for name in _HOST_OPTIONS})
    if sum(given is not None for given in (resume, ab, aa)) > 1 or (suite is None) == (resume is None):
        raise UsageError("run takes either a SUITE, alone or with one of --ab and --aa, or --resume RUN alone")
    if sbatch or batch:
        if not sbatch:
            raise UsageError(f"{batch[0]}: run takes one SUITE; only --sbatch takes further words, behind --")
        submit_batch(root, batch)
        ctx.exit(0)
    if (code := over_allocation(root, hosts.nodes)) is not None:
        ctx.exit(code)
    with verdict_left():
        hosts = hosts.of_task(Task.of(os.environ))
        if hosts.given and (ab or aa):
            raise UsageError("--rendezvous measures a suite once; leave out --ab and --aa")
        if hosts.given and resume is not None:
            _require_readable(resume)
        engine = EngineOptions(**options) if not hosts.given else engine_over_hosts(EngineOptions(**options))
        progress = make_progress(sys.stderr)
        if suite is not None and (ab or aa):
            several = Several(suite, root, chosen, engine, progress)
            ctx.exit(run_ab(several, ab) if ab else run_again(several, aa or 0))
        with gathered(hosts, engine, progress.note) as gathering:
            served = gathering is None and hosts.given
            begin = partial(_begun, suite, resume, root, chosen, engine)
            code = 0 if served else _finished(begin(gathering, progress), progress, gathering, detail=detail)
        ctx.exit(code)


def _require_readable(run: Path) -> None:
    """Before other hosts are waited for. Only the host that leads need have the run's folder."""
    from pybench.files.run.folder import RunFolder

    if run.exists():
        RunFolder.open(run).read_manifest()


def _begun(
    suite: Path | None,
    resume: Path | None,
    root: Path,
    chosen: PlanOptions,
    engine: EngineOptions,
    gathering: Gathering | None,
    progress: Progress,
) -> Run:
    """The run of a suite, or the one to resume, ready to measure."""
    from pybench.run.engines.choice import choose_launcher
    from pybench.run.hosts.preparation import chosen_on_all
    from pybench.run.prepare import prepare_run
    from pybench.run.resume import resume_run

    choose: Callable[[LaunchRequirements], Launcher] = partial(choose_launcher, engine, notify=progress.note)
    if gathering is not None:
        choose = chosen_on_all(choose, gathering)
    if suite is not None:
        return prepare_run(suite, root, choose, chosen, gathering)
    assert resume is not None
    return resume_run(resume, choose, chosen, gathering)


def _finished(job: Run, progress: Progress, gathering: Gathering | None, *, detail: bool) -> int:
    """Measure, judge and print the run; gives its exit code."""
    from pybench.cli.exit_codes import BY_VERDICT, INTERRUPTED

    results, interrupted = finish(job, progress, detail=detail)
    if not interrupted:
        return BY_VERDICT[results.verdict]
    if gathering is not None:
        gathering.dismiss("the run was interrupted on the host that leads")
    name_resuming(job)
    return INTERRUPTED


def _assumed(machine: Machine, kind: str | None, num_hosts: int | None) -> str:
    """Such as ``2 nodes of 8 x h200``."""
    of_one = f"{machine.gpu_count} x {kind or machine.kind}" if machine.gpus else f"{machine.cpu_cores} CPU cores"
    return of_one if num_hosts is None else f"{plural(num_hosts, 'node')} of {of_one}"


@click.command()
@click.argument("suite", type=PATH, required=False)
@click.option("--gpu", "kind", metavar="KIND", help="Plan for GPUs that are not here: h200, a100-40gb, 48gb.")
@click.option(
    "--gpus", "count", type=click.IntRange(1, 1024), metavar="N", help="Plan for so many GPUs; default with --gpu: 1."
)
@click.option("--nodes", "num_hosts", type=click.IntRange(1, 1024), metavar="N", help="Plan for N such hosts.")
@_plan_options
@click.pass_context
def plan(
    ctx: click.Context,
    /,
    *,
    suite: Path | None,
    kind: str | None,
    count: int | None,
    num_hosts: int | None,
    root: Path,
    **chosen: Any,  # noqa: ANN401 - the plan's options
) -> None:
    """Print the points SUITE expands to here, or on GPUs to choose.

    Without SUITE, print the shipped suites.
    """
    from shutil import get_terminal_size

    from pybench.core.plan.assumed_gpus import with_gpus
    from pybench.files.expected.file import load_tables
    from pybench.files.shipped import described_suites
    from pybench.machine.environment import snapshot
    from pybench.model.errors import UsageError
    from pybench.model.plan_options import PlanOptions
    from pybench.report.plan import render
    from pybench.report.suites import render_suites
    from pybench.run.suite_plan import earlier_times_s, plan_suite

    width = get_terminal_size().columns
    if suite is None:
        if any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params):
            raise UsageError("plan with options takes a SUITE; `pybench plan` alone lists the shipped suites")
        click.echo(render_suites(described_suites(), width=width), nl=False)
        return
    options = PlanOptions(**chosen)
    here = snapshot()
    machine = with_gpus(here, kind, count)
    is_assumed = machine is not here or num_hosts is not None
    if is_assumed and options.time_limit_s is not None:
        raise UsageError("--time-limit goes by what runs took here: give it without --gpu, --gpus and --nodes")
    for text in machine.unused_gpus:
        click.echo(f"pybench: {text}", err=True)
    found, points = plan_suite(suite, machine, options, root, assumed_hosts=(num_hosts or 1) if is_assumed else None)
    load_tables(Path(found.path), sorted(found.tables))  # a table that is absent or wrong ends a run, too
    takes = None if options.time_limit_s is None else earlier_times_s(found, points, machine, root)
    assumed = _assumed(machine, kind, num_hosts) if is_assumed else None
    click.echo(render(found, points, takes, machine.gpu_memory_bytes, assumed=assumed, width=width), nl=False)
