"""A run's reports: written and printed at its end, and rebuilt by ``pybench report``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.io import echo, terminal_options, write_shown
from pybench.cli.params import PATH, RUN
from pybench.model.errors import UsageError
from pybench.report.formats import FORMATS, REPORT_FILES, export, render, render_bytes

if TYPE_CHECKING:
    from pybench.model.progress import Progress
    from pybench.model.results import Results
    from pybench.report.run.view import RunView
    from pybench.run.loop import Run


@click.command()
@click.argument("run_path", metavar="RUN", type=RUN)
@click.option("--format", "name", type=click.Choice(tuple(FORMATS)), default="terminal", show_default=True,
              metavar="NAME", help=f"One of {', '.join(FORMATS)}.")  # fmt: skip
@click.option("-o", "--output", type=PATH, metavar="PATH", help="File to write, or folder for several files.")
@click.option("--inconclusive", type=click.Choice(("skipped", "failure")),
              help="How --format junit marks what the run could not decide; default: skipped.")  # fmt: skip
@click.option("-v", "--verbose", "detail", is_flag=True, help="Print every table; --format terminal only.")
def report(*, run_path: Path, name: str, output: Path | None, inconclusive: str | None, detail: bool) -> None:
    """Rebuild a report of RUN. RUN is a run's folder or results.json. `pybench compare` sets it against other runs."""
    from pybench.files.run.folder import RunFolder
    from pybench.report.run.view import RunView

    kind = FORMATS[name].output
    faults = (
        (detail and name != "terminal", f"-v belongs to --format terminal; --format {name} is always complete"),
        (inconclusive is not None and name != "junit", "--inconclusive belongs to --format junit"),
        (kind == "folder" and output is None, f"--format {name} writes several files; give their folder with -o DIR"),
        (kind == "bytes" and output is None, f"--format {name} is not text; give its file with -o FILE"),
    )
    for text in (text for is_wrong, text in faults if is_wrong):
        raise UsageError(text)
    given = {"detail": detail if name == "terminal" else None, "inconclusive": inconclusive}
    options = {option: value for option, value in given.items() if value is not None}
    is_file = run_path.suffix == ".json" and not run_path.is_dir()
    view = RunView.of_file(run_path) if is_file else RunView.of_folder(RunFolder.open(run_path))
    if output is None and name == "terminal":
        print_terminal_report(view, detail=detail)
    elif output is None:
        echo(render(view, name, **options), nl=False)
    elif kind == "folder":
        echo(export(view, name, output))
    else:
        write_shown(output, render_bytes(view, name) if kind == "bytes" else render(view, name, **options).encode())


def print_terminal_report(view: RunView, *, detail: bool) -> None:
    """Print the report at the terminal's width, at 80 columns where there is no terminal."""
    echo(render(view, "terminal", detail=detail, **terminal_options()), nl=False)


def name_resuming(job: Run) -> None:
    """Print the command that finishes an interrupted run."""
    where = "" if job.gathering is None else ", on every host"
    echo(f"pybench: interrupted; go on with{where}: {job.resume_command()}", err=True)


def name_faults(job: Run, progress: Progress) -> None:
    """Name the GPUs that do not answer, or that nothing may use."""
    for text in job.manifest.machine.unused_gpus:
        progress.note(text)


def write_reports(
    job: Run, results: Results, *, shown: str | None, detail: bool = False, is_resumed_below: bool = False
) -> None:
    """Write the reports that the run's folder keeps; print the one in the text format ``shown``, if any."""
    from pybench.report.run.view import RunView

    view = RunView.of_folder(job.folder, results)
    with job.disk_error():
        for name, file in REPORT_FILES.items():
            job.folder.write_report(file, render(view, name))
    if shown == "terminal":
        print_terminal_report(replace(view, is_resumed_below=is_resumed_below), detail=detail)
        echo(f"run folder: {job.folder.path}")
    elif shown is not None:
        echo(render(view, shown), nl=False)
