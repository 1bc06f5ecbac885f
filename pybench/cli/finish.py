"""What every run ends with: its reports in its folder, its table on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybench.model.progress import Progress
    from pybench.model.results import Results
    from pybench.run.loop import Run


def finish(job: Run, progress: Progress, *, detail: bool) -> tuple[Results, bool]:
    """Measure what the run owes, then write and print its reports; also whether it was interrupted."""
    name_faults(job, progress)
    interrupted = False
    try:
        results = job.finish(progress)
    except KeyboardInterrupt:
        interrupted, results = True, job.results()
    write_reports(job, results, shown=True, detail=detail)
    return results, interrupted


def name_resuming(job: Run) -> None:
    """Print the command that finishes an interrupted run."""
    import click

    from pybench.run.machine_trouble import resume_command

    command = resume_command(job.folder.path, job.launcher)
    click.echo(f"pybench: interrupted; go on with: {command}", err=True)


def name_faults(job: Run, progress: Progress) -> None:
    """Name the GPUs that do not answer, or that nothing may use."""
    for text in job.manifest.machine.unused_gpus:
        progress.note(text)


def write_reports(job: Run, results: Results, *, shown: bool, detail: bool = False) -> None:
    """Write the reports that the run's folder keeps; print the terminal's where it is ``shown``."""
    from pybench.cli.output import echo
    from pybench.cli.report import print_terminal_report, write_report_files
    from pybench.machine.disk import disk_error
    from pybench.report.run.view import RunView
    from pybench.run.machine_trouble import resume_remedy

    view = RunView.of_folder(job.folder, results)
    with disk_error(job.folder.path, *resume_remedy(job.folder.path, job.launcher)):
        write_report_files(job.folder, view)
    if shown:
        print_terminal_report(view, detail=detail)
        echo(f"run folder: {job.folder.path}")
