"""``pybench expect``: an expected table from a good run."""

from __future__ import annotations

from pathlib import Path

import click

from pybench.cli.path_types import FILE, FOLDER
from pybench.model.plural import plural


@click.command()
@click.option(
    "--from", "run_folder", metavar="RUN", type=FOLDER, required=True,
    help="Folder of the run to take figures from.",
)  # fmt: skip
@click.option("--table", metavar="NAME", help="Only what the suite judges by this table; default: by any.")
@click.option(
    "-o", "--output", metavar="FILE", type=FILE,
    help="File to write, NAME.toml, instead of printing.",
)  # fmt: skip
def expect(run_folder: Path, table: str | None, output: Path | None) -> None:
    """Write an expected table from a good run of this machine."""
    from pybench.core.assemble import assemble
    from pybench.core.good_run import table_of_run
    from pybench.core.measurements import Measurements
    from pybench.files.expected.file import write_table
    from pybench.files.expected.text import table_text
    from pybench.files.run.folder import RunFolder

    folder = RunFolder.open(run_folder)
    manifest = folder.read_manifest()
    measurements = Measurements.of(manifest.plan, folder.journal.records())
    name = output.stem if output else table or manifest.suite.name
    made = table_of_run(manifest, measurements, assemble(manifest, measurements), name, table)
    if output is None:
        click.echo(table_text(made), nl=False)
    else:
        write_table(made, output)
        click.echo(f"{output}: {plural(len(made.rows), 'row')}")
