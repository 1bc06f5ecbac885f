"""``pybench report``: a run's reports, from its folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pybench.cli.path_types import PATH
from pybench.report.formats import FORMATS, REPORT_FILES, export, render, render_bytes

if TYPE_CHECKING:
    from pybench.files.run.folder import RunFolder
    from pybench.report.run.view import RunView


@click.command()
@click.argument("run_path", metavar="RUN", type=PATH)
@click.argument("reference_paths", metavar="[REFERENCE]...", type=PATH, nargs=-1)
@click.option(
    "--format",
    "name",
    type=click.Choice(tuple(FORMATS)),
    default="terminal",
    show_default=True,
    metavar="NAME",
    help=f"One of {', '.join(FORMATS)}.",
)
@click.option(
    "-o", "--output", type=PATH, metavar="PATH", help="File to write, or folder for formats of several files."
)
@click.option(
    "--node",
    "node_path",
    type=PATH,
    metavar="RUN",
    help="Run or results.json of node_check to explain RUN by; --format html of RUN's folder only.",
)
@click.option("-v", "--verbose", "detail", is_flag=True, help="Print every table; --format terminal only.")
def report(
    run_path: Path,
    reference_paths: tuple[Path, ...],
    name: str,
    output: Path | None,
    node_path: Path | None,
    detail: bool,
) -> None:
    """Rebuild a report of RUN.

    RUN is a run's folder or its results.json. With REFERENCEs, RUN is reported against them.
    """
    from pybench.cli.output import echo
    from pybench.cli.output_file import write_shown
    from pybench.model.errors import UsageError

    if detail and name != "terminal":
        raise UsageError(f"-v belongs to --format terminal; --format {name} is always complete")
    if node_path is not None and (name != "html" or reference_paths):
        raise UsageError("--node belongs to --format html of one run; pybench explain prints the same for the terminal")
    kind = FORMATS[name].output
    if kind == "folder" and output is None:
        raise UsageError(f"--format {name} writes several files; give their folder with -o DIR")
    if kind == "bytes" and output is None:
        raise UsageError(f"--format {name} is not text; give its file with -o FILE")
    if reference_paths:
        _report_comparison(run_path, reference_paths, name, output, detail=detail)
        return
    view = _view(run_path, node_path)
    if output is None and name == "terminal":
        print_terminal_report(view, detail=detail)
    elif output is None:
        echo(render(view, name), nl=False)
    elif kind == "folder":
        echo(export(view, name, output))
    elif kind == "bytes":
        write_shown(output, render_bytes(view, name))
    else:
        write_shown(output, render(view, name, **({"detail": detail} if name == "terminal" else {})).encode())


def _report_comparison(
    run_path: Path, reference_paths: tuple[Path, ...], name: str, output: Path | None, *, detail: bool
) -> None:
    """The run against its references: the table of ``pybench compare``, or a page."""
    from pybench.cli.output import echo
    from pybench.cli.output_file import write_shown
    from pybench.core.figures import run_figures
    from pybench.files.run.results_file import results_of
    from pybench.model.errors import UsageError
    from pybench.nightly.compare_command import print_comparison
    from pybench.nightly.comparison import compare

    if name not in {"terminal", "html"}:
        raise UsageError(f"--format {name} is of one run; several are compared with --format terminal or html")
    if name == "terminal" and output is not None:
        raise UsageError("-o of several runs needs --format html; the terminal's table goes to standard output")
    run, *references = (run_figures(results_of(path)) for path in (run_path, *reference_paths))
    found = compare(run, references)
    if name == "terminal":
        print_comparison(found, run, references, detail=detail)
        return
    from pybench.nightly.comparison_page import render as render_page

    text = render_page(found, run, references)
    if output is None:
        echo(text, nl=False)
    else:
        write_shown(output, text.encode())


def print_terminal_report(view: RunView, *, detail: bool) -> None:
    """Print the report at the terminal's width, at 80 columns where there is no terminal."""
    from pybench.cli.output import echo, terminal_options

    echo(render(view, "terminal", detail=detail, **terminal_options()), nl=False)


def write_report_files(folder: RunFolder, view: RunView) -> None:
    """Write every report that a run's folder keeps. Raises ``RunFolderError``."""
    for name, file in REPORT_FILES.items():
        folder.write_report(file, render(view, name))


def _view(path: Path, node_path: Path | None = None) -> RunView:
    from dataclasses import replace

    from pybench.files.run.folder import RunFolder
    from pybench.report.run.view import RunView

    if node_path is not None:
        from pybench.explain.command import explanation_of
        from pybench.model.errors import UsageError

        if path.is_file():
            raise UsageError(f"{path}: --node needs the run's folder, as its attempts are not in results.json")
        run = RunFolder.open(path)
        explanation = explanation_of(run, run.read_manifest(), node_path)
        return replace(RunView.of_folder(run), explanation=explanation)

    if path.suffix == ".json" and not path.is_dir():
        return RunView.of_file(path)
    return RunView.of_folder(RunFolder.open(path))
