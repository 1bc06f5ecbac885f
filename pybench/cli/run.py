"""``pybench run``: read the command line, prepare, measure, judge, report, exit."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from pybench.cli.params import FOLDER, PATH, SUITE, Duration
from pybench.cli.plan import plan_options
from pybench.report.formats import TEXTS
from pybench.run.engines import ENGINES

if TYPE_CHECKING:
    from pathlib import Path

    from pybench.cli.run_hosts import HostOptions
    from pybench.model.manifest import PlanOptions
    from pybench.model.progress import Progress
    from pybench.run.engines.base import EngineOptions
    from pybench.run.hosts.gathering import Gathering
    from pybench.run.loop import Run


def _refer_to_plan(_ctx: click.Context, _option: click.Parameter, given: bool) -> None:
    if given:
        raise click.UsageError("pybench plan, with the same options, prints what run would measure")


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
            envvar="PYBENCH_ENGINE",
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


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The command line: ``suite`` or ``resume``, stacks ``ab``, number of runs ``aa``, sbatch's ``batch``."""

    suite: Path | None
    resume: Path | None
    ab: tuple[str, str] | None
    aa: int | None
    sbatch: bool
    batch: tuple[str, ...]
    root: Path
    shown: str
    detail: bool
    quiet: bool
    wait_s: float | None
    plan: PlanOptions
    hosts: HostOptions
    engine: EngineOptions

    @classmethod
    def read(cls, given: dict[str, Any]) -> RunOptions:
        """Sort the values of click's parameters. Raises ``UsageError`` for options that contradict each other."""
        from dataclasses import fields

        from pybench.cli.run_hosts import HostOptions
        from pybench.model.errors import UsageError
        from pybench.model.manifest import PlanOptions
        from pybench.run.engines.base import EngineOptions

        parts: dict[str, Any] = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind) if field.name in given})
            for name, kind in (("plan", PlanOptions), ("hosts", HostOptions), ("engine", EngineOptions))
        }
        options = cls(**given, **parts)
        if sum(value is not None for value in (options.resume, options.ab, options.aa)) > 1 or (
            (options.suite is None) == (options.resume is None)
        ):
            raise UsageError("run takes either a SUITE, alone or with one of --ab and --aa, or --resume RUN alone")
        if options.shown != "terminal" and (options.ab or options.aa or options.detail):
            raise UsageError(f"--format {options.shown} is complete, and of one run: leave out -v, --ab and --aa")
        if options.batch and not options.sbatch:
            raise UsageError(f"{options.batch[0]}: run takes one SUITE; only --sbatch takes further words, behind --")
        return options

    def on_this_host(self) -> RunOptions:
        """Complete the options by the Slurm task that this process is. Raises ``UsageError``."""
        from pybench.cli.run_hosts import engine_over_hosts
        from pybench.files.run.folder import RunFolder
        from pybench.model.errors import UsageError
        from pybench.run.slurm import Task

        hosts = self.hosts.of_task(Task.of(os.environ))
        if not hosts.given:
            return replace(self, hosts=hosts)
        if self.ab or self.aa:
            raise UsageError("--rendezvous measures a suite once; leave out --ab and --aa")
        # Only the leading host needs the run's folder. It is read before other hosts are waited for.
        if self.resume is not None and self.resume.exists():
            RunFolder.open(self.resume).read_manifest()
        return replace(self, hosts=hosts, engine=engine_over_hosts(self.engine))


@click.command()
@click.argument("suite", type=SUITE, required=False)
@click.argument("batch", nargs=-1)
@plan_options
@click.option("--sbatch", is_flag=True, help="Submit the run to Slurm; options of sbatch come last, behind --.")
@click.option("--resume", type=FOLDER, metavar="RUN", help="Finish an interrupted run instead of starting one.")
@click.option("--ab", type=(str, str), metavar="A B", help="Two Pythons or images, measured in turn and compared.")
@click.option("--aa", type=click.IntRange(2, 100), metavar="N", help="Repeat the suite N times, as runs of their own.")
@click.option("--format", "shown", type=click.Choice(TEXTS), default="terminal", show_default=True, metavar="NAME",
              help=f"What is printed at the end: {', '.join(TEXTS)}.")  # fmt: skip
@click.option("-v", "--verbose", "detail", is_flag=True, help="Print every table, not only one row a point.")
@click.option("--dry-run", is_flag=True, hidden=True, expose_value=False, callback=_refer_to_plan)
@click.option("-q", "--quiet", is_flag=True, help="Print the report alone, no progress.")
@click.option(
    "--wait",
    "wait_s",
    type=Duration(least_s=0),
    metavar="TIME",
    help="Wait so long for another run on the same GPUs, 0s for not at all; default: without end.",
)
@_host_options
@_engine_options
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401 - the fields of RunOptions and of its parts
    """Run SUITE, judge it, and exit with its verdict."""
    from pybench.cli.exit_codes import BY_VERDICT, INTERRUPTED
    from pybench.cli.progress import make_progress
    from pybench.cli.report import name_faults, name_resuming, write_reports
    from pybench.cli.run_hosts import gathered, over_allocation, submit_batch, verdict_left

    options = RunOptions.read(given)
    if options.sbatch:
        submit_batch(options.root, options.batch)
        return
    if (code := over_allocation(options.root, options.hosts.nodes)) is not None:
        ctx.exit(code)
    with verdict_left():
        options = options.on_this_host()
        progress = make_progress(sys.stderr, quiet=options.quiet)
        if options.ab or options.aa:
            several = ctx.obj("several")(options.suite, options.root, options.plan, options.engine, progress)
            ctx.exit(ctx.obj("ab")(several, options.ab) if options.ab else ctx.obj("aa")(several, options.aa))
        with gathered(options.hosts, options.engine, progress.note) as gathering:
            if gathering is None and options.hosts.given:
                ctx.exit(0)  # this host only took part
            job = _prepare(ctx, options, gathering, progress)
            name_faults(job, progress)
            _name_judges(ctx, job, progress)
            interrupted = False
            try:
                results = job.finish(progress)
            except KeyboardInterrupt:
                interrupted, results = True, job.results()
            write_reports(job, results, shown=options.shown, detail=options.detail)
            if interrupted and gathering is not None:
                gathering.dismiss("the run was interrupted on the host that leads")
        if interrupted:
            name_resuming(job)
        ctx.exit(INTERRUPTED if interrupted else BY_VERDICT[results.verdict])


def _name_judges(ctx: click.Context, job: Run, progress: Progress) -> None:
    """Say before the first attempt what judges the points, and how long they take where no earlier run shows it."""
    from pybench.cli.plan import predicts_here
    from pybench.core.judged_by import judged_by, judged_sentence
    from pybench.report.plan import takes_text
    from pybench.run.time_budget import earlier_times_s, kept_attempts_s

    manifest, root = job.manifest, job.folder.path.parent
    predicts = predicts_here(ctx, root, manifest.machine, manifest.plan)
    judges = judged_by(manifest.suite, manifest.plan, manifest.tables, manifest.machine, predicts)
    plan = manifest.plan
    kept_s = {} if manifest.machines else kept_attempts_s(manifest.suite.name, plan, manifest.machine)
    takes = takes_text(
        manifest.plan, earlier_times_s(manifest.suite, manifest.plan, manifest.machine, root, manifest.machines), kept_s
    )
    progress.note(f"{judged_sentence(judges, plan.rates_run)}; {takes}")


def _prepare(ctx: click.Context, options: RunOptions, gathering: Gathering | None, progress: Progress) -> Run:
    """Plan the suite, or read the run to resume; choose what starts its workers."""
    from pybench.cli.plan import of_product
    from pybench.run.engines.choice import choose_launcher
    from pybench.run.prepare import choose_on_all, prepare_run
    from pybench.run.resume import resume_run

    choose: Any = partial(choose_launcher, options.engine, notify=progress.note)
    if gathering is not None:
        choose = partial(choose_on_all, choose, gathering)
    if options.suite is not None:
        rates = of_product(ctx, "rates")
        job = prepare_run(options.suite, options.root, choose, options.plan, gathering, None, progress.note, rates)
    else:
        assert options.resume is not None
        job = resume_run(options.resume, choose, options.plan, gathering)
    return replace(job, predict=of_product(ctx, "predictions"), wait_s=options.wait_s)
