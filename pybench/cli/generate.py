"""Commands that give something to start from: ``pybench ci``, ``expect``, ``example`` and ``schema``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from pybench.cli.io import echo, json_text
from pybench.cli.params import FILE, FOLDER, Duration
from pybench.model.text import plural

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
    """Print a nightly workflow for a machine of your own.

    It runs SUITE and judges it against earlier nights.
    """
    from pybench.files.shipped import find_suite, is_bare
    from pybench.report.workflow import Workflow, render

    workflow = Workflow(
        suite=suite, runner=runner, gpus=gpus, schedule=schedule, time_limit_s=time_limit_s, branch=branch
    )
    text = render(system, workflow)
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
    """Write an expected table from good runs of one host or several.

    Rows of fewer than three hosts are provisional.
    """
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
    """Unpack runs of two H200s into FOLDER, by default example.

    Every command that reads a run can be tried on them.
    """
    import tarfile

    from pybench.files.shipped import shipped_suites
    from pybench.model.errors import UsageError

    if folder.exists():
        raise UsageError(f"{folder}: is there already; remove it, or name another folder")
    with tarfile.open(shipped_suites() / "example.tar.xz") as archive:
        members = [member.replace(name=member.name.partition("/")[2]) for member in archive if "/" in member.name]
        archive.extractall(folder, members, filter="data")
    for path in sorted(folder.iterdir()):
        echo(f"pybench report {path}")


@click.command()
@click.argument("of", type=click.Choice(_SCHEMAS), default="suite")
@click.pass_context
def schema(ctx: click.Context, of: str) -> None:
    """Print the JSON Schema of suite files, for editors, or of a command's JSON."""
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
