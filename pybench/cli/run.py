"""``pybench run``: read the command line, prepare, measure, judge, report, exit; alone or with other hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pybench.cli.exit_codes import BY_VERDICT, INTERNAL, INTERRUPTED, exit_code_of
from pybench.cli.io import echo
from pybench.cli.params import FOLDER, PATH, SUITE, Duration
from pybench.cli.plan import of_product, plan_options, predicts_here
from pybench.model.errors import PybenchError, UsageError
from pybench.report.formats import TEXTS
from pybench.run.engines import CONTAINER_ENGINES, ENGINES, LOCAL

if TYPE_CHECKING:
    from pybench.model.manifest import PlanOptions
    from pybench.model.progress import Progress
    from pybench.run.engines.base import EngineOptions
    from pybench.run.hosts.gathering import Gathering
    from pybench.run.loop import Run


def _refer_to_plan(_ctx: click.Context, _option: click.Parameter, given: bool) -> None:
    if given:
        raise click.UsageError("pybench plan, with the same options, prints what run would measure")


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The command line's part, of a run over several hosts."""

    rendezvous: str | None = None
    nodes: int | None = None
    node_rank: int | None = None
    join_limit_s: float | None = None

    @property
    def given(self) -> bool:
        """Whether the run is over several hosts. Raises ``UsageError`` for options that lack others."""
        together = {self.rendezvous is None, self.nodes is None}
        if len(together) > 1 or (self.rendezvous is None and (self.node_rank, self.join_limit_s) != (None, None)):
            raise UsageError(
                "--rendezvous HOST:PORT and --nodes N go together, as --node-rank and --join-limit do with them"
            )
        return self.rendezvous is not None


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
        from pybench.files.run.folder import RunFolder
        from pybench.run.slurm import task_of

        hosts, engine = self.hosts, self.engine
        if (task := task_of(os.environ)) is not None:
            meet, nodes, node_rank = task
            hosts = replace(hosts, rendezvous=hosts.rendezvous or meet, nodes=nodes, node_rank=node_rank)
        if not hosts.given:
            return self
        if self.ab or self.aa:
            raise UsageError("--rendezvous measures a suite once; leave out --ab and --aa")
        # Only the leading host needs the run's folder. It is read before other hosts are waited for.
        if self.resume is not None and self.resume.exists():
            RunFolder.open(self.resume).read_manifest()
        # All hosts share the engine: none unless one is named.
        engine = replace(engine, engine=LOCAL) if engine.engine == "auto" else engine
        if engine.image and engine.engine == LOCAL:
            named = f"--engine {' or '.join(CONTAINER_ENGINES)}"
            raise UsageError(f"--image {engine.image}: name the engine that all hosts have: {named}")
        return replace(self, hosts=hosts, engine=engine)


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
    "--wait", "wait_s", type=Duration(least_s=0), metavar="TIME",
    help="Wait so long for another run on the same GPUs, 0s for not at all; default: no end.",
)  # fmt: skip
@click.option("--rendezvous", metavar="HOST:PORT", help="Where hosts meet that run this command together.")
@click.option("--nodes", type=click.IntRange(2, 1024), metavar="N", help="Hosts of the run; with --rendezvous.")
@click.option("--node-rank", type=click.IntRange(0), metavar="N", help="This host's number; 0 leads the run.")
@click.option("--join-limit", "join_limit_s", type=Duration(), metavar="TIME", help="Wait for hosts; default: 90s.")
@click.option(
    "--engine", type=click.Choice(("auto", *ENGINES)), default="auto", show_default=True, envvar="PYBENCH_ENGINE",
    help="Container engine; auto takes one that has the images, else none.",
)  # fmt: skip
@click.option("--image", metavar="NAME", help="Image of the lock to use instead of the backend's own.")
@click.option("--allow-unpinned", is_flag=True, help="Run an image that is not locked; the run can't pass.")
@click.option("--lock", type=PATH, metavar="FILE", help="Lock of images instead of the one that comes along.")
@click.option("--python", metavar="PATH", help="Python that has the backends, for engine none; default: this.")
@click.pass_context
def run(ctx: click.Context, /, **given: Any) -> None:  # noqa: ANN401 - the fields of RunOptions and of its parts
    """Run SUITE, judge it, and exit with its verdict."""
    from pybench.cli.progress import make_progress
    from pybench.cli.report import name_faults, name_resuming, write_reports
    from pybench.run.slurm import run_step, srun_command, submit_batch

    options = RunOptions.read(given)
    if options.sbatch:
        job_id, script, output = submit_batch(sys.argv, options.root, options.batch)
        echo(f"job {job_id} is submitted: {script}")
        echo(f"its output: {output}")
        return
    if (srun := srun_command(os.environ, sys.argv, options.hosts.nodes)) is not None:
        ctx.exit(run_step(srun, options.root, os.environ, partial(echo, err=True)))
    with _verdict_left():
        options = options.on_this_host()
        progress = make_progress(sys.stderr, quiet=options.quiet)
        if options.ab or options.aa:
            ctx.exit(ctx.obj("ab" if options.ab else "aa")(options, options.ab or options.aa, progress))
        with _gathered(options.hosts, options.engine, progress.note) as gathering:
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
            write_reports(job, results, shown=options.shown, detail=options.detail, is_resumed_below=interrupted)
            if interrupted and gathering is not None:
                gathering.dismiss("the run was interrupted on the host that leads")
        if interrupted:
            name_resuming(job)
        ctx.exit(INTERRUPTED if interrupted else BY_VERDICT[results.verdict])


def _name_judges(ctx: click.Context, job: Run, progress: Progress) -> None:
    """Say before the first attempt what judges the points, and how long they take where no earlier run shows it."""
    from pybench.core.judged_by import judged_by, judged_sentence
    from pybench.report.plan import takes_text
    from pybench.run.suite_plan import earlier_attempts_s, kept_attempts_s

    manifest, root = job.manifest, job.folder.path.parent
    predicts = predicts_here(ctx, root, manifest.machine, manifest.plan)
    judges = judged_by(manifest.suite, manifest.plan, manifest.tables, manifest.machine, predicts)
    plan = manifest.plan
    kept_s = {} if manifest.machines else kept_attempts_s(manifest.suite.name, plan, manifest.machine)
    earlier_s = earlier_attempts_s(root, manifest.suite.name, manifest.fingerprint, plan)
    takes = takes_text(plan, earlier_s, kept_s, job.folder.journal.records())
    progress.note(f"{judged_sentence(judges, plan.rates_run)}; {takes}")


def _prepare(ctx: click.Context, options: RunOptions, gathering: Gathering | None, progress: Progress) -> Run:
    """Plan the suite, or read the run to resume; choose what starts its workers."""
    from pybench.run.engines.choice import choose_launcher
    from pybench.run.prepare import choose_on_all, prepare_run, resume_run

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


@contextmanager
def _gathered(options: HostOptions, engine: EngineOptions, notify: Callable[[str], None]) -> Iterator[Gathering | None]:
    """Lead the hosts of a run, release them at its end; ``None`` without any, and where this one took part."""
    gathering = _gather_or_serve(options, engine, notify) if options.given else None
    problem = "the host that leads failed"
    try:
        yield gathering
        problem = ""
    except KeyboardInterrupt:
        problem = "the run was interrupted on the host that leads"
        raise
    except Exception as error:
        problem = f"the host that leads ended the run: {error}"
        raise
    finally:
        if gathering is not None:
            gathering.dismiss(problem)


def _gather_or_serve(options: HostOptions, engine: EngineOptions, notify: Callable[[str], None]) -> Gathering | None:
    from pybench.machine.disk import scratch_folder
    from pybench.machine.signals import signals_interrupt
    from pybench.model.container import ContainerRequest
    from pybench.run.engines.base import LaunchRequirements
    from pybench.run.engines.choice import choose_launcher
    from pybench.run.hosts.gathering import gather
    from pybench.run.hosts.rendezvous import JOIN_LIMIT_S, Rendezvous, host_name, read_secret, this_host
    from pybench.run.serve import NodeRunner

    limit_s = options.join_limit_s or JOIN_LIMIT_S
    meet = Rendezvous.parse(options.rendezvous or "", options.nodes or 0, options.node_rank, limit_s)
    secret, name = read_secret(os.environ), host_name(os.environ)
    choose = partial(choose_launcher, engine, notify=notify)
    needs = LaunchRequirements(backends=(), device="cpu", request=ContainerRequest())
    local = choose(needs) if engine.engine == LOCAL else None
    host = this_host(name, engine.engine, local, alone=meet.is_on_loopback)
    listener = meet.listener()
    if listener is not None:
        notify(f"host {name} leads; waiting at {meet} for {meet.num_nodes - 1} more")
        return gather(meet, listener, host, secret, notify)
    with signals_interrupt(), scratch_folder("pybench-node-") as folder:
        NodeRunner(host, meet.joined(secret), choose, folder, notify, meet.limit_s).serve()
    return None


@contextmanager
def _verdict_left() -> Iterator[None]:
    """Where this is a task that :func:`run_step` started: leave the exit code in a file."""
    from pybench.run.slurm import STEP_VARIABLE, write_verdict

    code = INTERNAL
    try:
        yield
    except click.exceptions.Exit as end:
        code = end.exit_code
        raise
    except PybenchError as error:
        code = exit_code_of(error)
        raise
    except KeyboardInterrupt:
        code = INTERRUPTED
        raise
    finally:
        if (folder := os.environ.get(STEP_VARIABLE)) is not None:
            with suppress(OSError):  # no shared folder: the command that started the step reports that
                write_verdict(Path(folder), int(os.environ.get("SLURM_NODEID", "0")), os.uname().nodename, code)
