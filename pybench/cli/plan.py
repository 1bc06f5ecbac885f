"""Commands before a run: ``plan``, ``doctor``, and those that give something to start from."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from pybench.cli.exit_codes import MACHINE
from pybench.cli.io import echo, json_text, terminal_options
from pybench.cli.params import FILE, FOLDER, SUITE, Duration, format_option
from pybench.model.errors import PybenchError, UsageError
from pybench.model.text import plural

if TYPE_CHECKING:
    from pybench.model.machine import Machine
    from pybench.model.suite import Plan

_SET = "Replace a setting: batch_size=1, benchmark.decode.attempts=5. Repeatable."
_REQUIRE = "What must be here, such as gpus=8,backend=vllm; else no pass. table: no prediction judges."
_RUNS = "Folder of runs; default: runs."
_KEEP = "Keep the points whose id matches, as in pytest -k."
_TIME_LIMIT = "Time for all attempts, such as 20m; what does not fit is left out and named."


def _once(_ctx: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The expression. Of several, click would take the last and drop the others without a word."""
    if len(given) > 1:
        both = " or ".join(f"({text})" for text in given)
        raise click.BadParameter(f"given {len(given)} times; give one, such as -k {shlex.quote(both)}")
    return given[0] if given else None


def _names(ctx: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    """Names of the suite's benchmarks that begin so; none where the suite can't be read."""
    import tomllib

    from pybench.files.shipped import find_suite

    named = ctx.params["suite"] or "".join(ctx.args[:1])  # unparsed while an option lacks its value
    try:
        suite = tomllib.loads(find_suite(Path(named)).read_text(encoding="utf-8"))
        names = [str(benchmark["name"]) for benchmark in suite["benchmark"]]
    except (OSError, ValueError, LookupError, TypeError, PybenchError):
        names = []
    return [name for name in names if name.startswith(incomplete)]


def plan_options(command: Any) -> Any:  # noqa: ANN401 - click decorators are typed loosely
    """Add the options that ``plan`` and ``run`` share."""
    for option in (
        click.option("--runs", "root", type=FOLDER, default=Path("runs"), envvar="PYBENCH_RUNS", help=_RUNS),
        click.option("--time-limit", "time_limit_s", type=Duration(), metavar="TIME", help=_TIME_LIMIT),
        click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help=_SET),
        click.option("--steps", type=click.IntRange(1, 10_000), help="Measured steps of each attempt."),
        click.option("--attempts", type=click.IntRange(1, 100), help="Attempts at each point, and no more."),
        click.option("--require", metavar="WHAT", help=_REQUIRE),
        click.option("--max-gpus", type=click.IntRange(1), help="Leave out points that need more GPUs than this."),
        click.option("-k", "keep", metavar="EXPR", multiple=True, callback=_once, help=_KEEP, shell_complete=_names),
        click.option("--profile", metavar="NAME", help="Profile to apply; default: the machine's own, if there."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("suite", type=SUITE, required=False)
@click.option("--gpu", "kind", metavar="KIND", help="Plan for GPUs that are not here: h200, a100-40gb, 48gb.")
@click.option(
    "--gpus", "count", type=click.IntRange(1, 1024), metavar="N", help="Plan for so many GPUs; default with --gpu: 1."
)
@click.option("--nodes", "num_hosts", type=click.IntRange(1, 1024), metavar="N", help="Plan for N such hosts.")
@plan_options
@format_option
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
    name: str,
    **chosen: Any,  # noqa: ANN401 - the plan's options
) -> None:
    """Print the points SUITE expands to here, or on GPUs to choose. Without SUITE, print the shipped suites."""
    from shutil import get_terminal_size

    from pybench.core.gpu_models import with_gpus
    from pybench.core.judged_by import judged_by
    from pybench.core.provenance import fingerprint, run_fields
    from pybench.files.shipped import described_suites
    from pybench.files.suite.expected_table import load_tables
    from pybench.machine.environment import snapshot
    from pybench.model.manifest import PlanOptions
    from pybench.report.plan import plan_values, render, render_suites
    from pybench.run.suite_plan import earlier_attempts_s, kept_attempts_s, plan_suite

    width = get_terminal_size().columns
    if suite is None:
        if any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in ctx.params):
            raise UsageError("plan with options takes a SUITE; `pybench plan` alone lists the shipped suites")
        echo(render_suites(described_suites(), width=width), nl=False)
        return
    options = PlanOptions(**chosen)
    here = snapshot(lambda text: echo(f"pybench: {text}", err=True))
    machine = with_gpus(here, kind, count)
    is_assumed = machine is not here or num_hosts is not None
    if is_assumed and options.time_limit_s is not None:
        raise UsageError("--time-limit goes by what runs took here: give it without --gpu, --gpus and --nodes")
    hosts, rates = (num_hosts or 1, None) if is_assumed else (None, of_product(ctx, "rates"))
    planned, points = plan_suite(suite, machine, options, root, assumed_hosts=hosts, earlier_rates=rates)
    for text in machine.unused_gpus:
        echo(f"pybench: {text}", err=True)
    tables = load_tables(Path(planned.path), sorted(planned.tables))  # a table that is absent or wrong ends a run, too
    takes = {} if is_assumed else earlier_attempts_s(root, planned.name, fingerprint(run_fields(machine)), points)
    judges = judged_by(planned, points, tables, machine, predicts_here(ctx, root, machine, points))
    kept_s = kept_attempts_s(planned.name, points, machine) if num_hosts is None else {}
    if name == "json":
        echo(json_text(asdict(plan_values(planned, points, takes, judges, kept_s))), nl=False)
        return
    of_one = f"{machine.gpu_count} x {kind or machine.kind}" if machine.gpus else f"{machine.cpu_cores} CPU cores"
    nodes = f"{plural(num_hosts, 'node')} of " if num_hosts else ""
    assumed = f"{nodes}{of_one}" if is_assumed else None
    text = render(
        planned, points, takes, machine.gpu_memory_bytes, judges=judges, kept_s=kept_s, assumed=assumed, width=width
    )
    echo(text, nl=False)


def predicts_here(ctx: click.Context, root: Path, machine: Machine, plan: Plan) -> Any:  # noqa: ANN401 - a product's
    """Which speedups the plan's own rates, or a run of node_check below ``root``, predict; none without the product."""
    predicts = of_product(ctx, "predicts")
    return predicts(root, machine, plan) if predicts else lambda _base, _point: False


def of_product(ctx: click.Context, name: str) -> Any:  # noqa: ANN401 - a function of a product
    """A product's function of this name; ``None`` where the product was removed."""
    try:
        return ctx.obj(name)
    except UsageError:
        return None


@click.command()
@format_option
@click.pass_context
def doctor(ctx: click.Context, name: str) -> None:
    """Report what this machine has and lacks, each with its remedy."""
    from pybench.machine.doctor import examine
    from pybench.machine.environment import snapshot
    from pybench.report.plan import render_findings
    from pybench.run.engines.doctor import examine_containers

    findings = (*examine(lambda text: echo(f"pybench: {text}", err=True)), *examine_containers(snapshot()))
    if name == "json":
        echo(json_text({"findings": [asdict(finding) for finding in findings]}), nl=False)
    else:
        echo(render_findings(findings, width=terminal_options()["width"]), nl=False)
    ctx.exit(MACHINE if any(finding.state == "missing" for finding in findings) else 0)


_SCHEMAS = ("suite", "results", "plan", "doctor", "compare", "explain", "fleet", "gate", "history")


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
    """Print a nightly workflow for a machine of your own. It runs SUITE and judges it against earlier nights."""
    from pybench.files.shipped import find_suite, is_bare
    from pybench.report.workflow import render

    text = render(
        system, suite=suite, runner=runner, gpus=gpus, schedule=schedule, time_limit_s=time_limit_s, branch=branch
    )
    named = Path(suite)
    if is_bare(named):
        find_suite(named)
    elif not named.exists():
        echo(f"pybench: {suite}: not here; the workflow looks for it in the repository", err=True)
    echo(text, nl=False)


@click.command()
@click.option("--from", "run_folders", metavar="RUN", type=FOLDER, required=True, multiple=True,
              help="Folder of a run to take figures from.")  # fmt: skip
@click.argument("more_runs", metavar="[RUN]...", type=FOLDER, nargs=-1)
@click.option("--table", metavar="NAME", help="Only what the suite judges by this table; default: by any.")
@click.option("-o", "--output", metavar="FILE", type=FILE, help="File to write, NAME.toml, instead of printing.")
def expect(run_folders: tuple[Path, ...], more_runs: tuple[Path, ...], table: str | None, output: Path | None) -> None:
    """Write an expected table from good runs of one host or several. Rows of fewer than three hosts are provisional."""
    from pybench.core.assemble import assemble
    from pybench.core.good_run import GoodRun
    from pybench.core.population import population_of
    from pybench.files.run.folder import RunFolder
    from pybench.files.suite.expected_table import table_text, write_table

    runs = []
    for path in (*run_folders, *more_runs):
        manifest, measurements = RunFolder.open(path).read()
        runs.append(GoodRun(manifest=manifest, measurements=measurements, results=assemble(manifest, measurements)))
    name = output.stem if output else table or runs[0].manifest.suite.name
    population = population_of(runs, name, table)
    if output is None:
        echo(table_text(population.table), nl=False)
    else:
        write_table(population.table, output)
        echo(f"{output}: {plural(len(population.table.rows), 'row')}")
    echo(population.note, err=True)


@click.command()
@click.argument("folder", type=FOLDER, default=Path("example"))
def example(folder: Path) -> None:
    """Unpack runs of two H200s into FOLDER, by default example. Every command that reads a run can be tried on them."""
    import tarfile

    from pybench.files.shipped import shipped_suites
    from pybench.machine.disk import disk_error

    if folder.exists():
        raise UsageError(f"{folder}: is there already; remove it, or name another folder")
    again = f" remove {folder} and run the command again"
    with disk_error(folder, "", again), tarfile.open(shipped_suites() / "example.tar.xz") as archive:
        members = [member.replace(name=member.name.partition("/")[2]) for member in archive if "/" in member.name]
        archive.extractall(folder, members, filter="data")
    for path in sorted(folder.iterdir()):
        echo(f"pybench report {path}")


@click.command()
@click.argument("of", metavar="[NAME]", type=click.Choice(_SCHEMAS), default="suite")
@click.pass_context
def schema(ctx: click.Context, of: str) -> None:
    """Print the JSON Schema of suite files, for editors, or of a command's JSON.

    NAME is suite, which is the default, results, plan, doctor, compare, explain, fleet, gate or history.
    """
    from pybench.files.suite.schema import suite_schema
    from pybench.model.figures import RunComparison
    from pybench.model.machine import DoctorFinding
    from pybench.model.results import Results
    from pybench.report.plan import PlanValues
    from pybench.report.run.results_json import values_schema

    doctor = dict[Literal["findings"], tuple[DoctorFinding, ...]]
    kinds = {"results": Results, "plan": PlanValues, "doctor": doctor, "compare": RunComparison}
    shown = suite_schema() if of == "suite" else values_schema(kinds.get(of) or ctx.obj(f"{of} values"), of)
    echo(json_text(shown), nl=False)
