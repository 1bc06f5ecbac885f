"""``pybench bundle`` and ``pybench verify``: a run's evidence as one file, and whether it holds."""

from __future__ import annotations

from pathlib import Path

import click

from pybench.cli.params import FILE, FOLDER, PATH


@click.command()
@click.argument("run_folder", metavar="RUN", type=FOLDER)
@click.option("-o", "--output", "file", type=FILE, metavar="FILE", required=True, help="Bundle to write, a .zip.")
@click.option("--sign", "key", type=FILE, metavar="KEY", help="SSH key to sign it with; writes FILE.sig.")
def bundle(run_folder: Path, file: Path, key: Path | None) -> None:
    """Write RUN's evidence to one file.

    It holds manifest, journal, traces, worker source, results, reports and SHA-256 sums.
    """
    import shlex

    from pybench.cli.io import echo
    from pybench.evidence.archive import digest_of, write_bundle
    from pybench.evidence.signature import sign
    from pybench.files.run.folder import RunFolder, copying
    from pybench.model.errors import RunFolderError, UsageError

    folder = RunFolder.open(run_folder)
    manifest = folder.read_manifest()
    if not (folder.path / "results.json").is_file():
        run, results = (shlex.quote(str(path)) for path in (run_folder, run_folder / "results.json"))
        raise RunFolderError(
            f"{run_folder}: no results.json; write it with: pybench report {run} --format json -o {results}"
        )
    if key is not None and not key.is_file():
        raise UsageError(f"--sign {key}: no such key; make one with: ssh-keygen -t ed25519")
    with copying(folder.path):
        names = write_bundle(folder.path, manifest.run_id, file)
    echo(f"{file}: {len(names)} files, {file.stat().st_size:,} bytes")
    echo(f"sha256 {digest_of(file)}")
    if key is not None:
        echo(f"signature: {sign(file, key)}")
    echo(f"check it with: pybench verify {shlex.quote(str(file))}")


@click.command()
@click.argument("path", metavar="FILE|RUN", type=PATH)
@click.option("--suite", "suite_file", type=FILE, metavar="FILE", help="Suite to trust, with its tables beside it.")
@click.option("--signers", type=FILE, metavar="FILE", help="Allowed signers; one of them must have signed it.")
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Write what was found there, too.")
@click.pass_context
def verify(
    ctx: click.Context, path: Path, suite_file: Path | None, signers: Path | None, json_file: Path | None
) -> None:
    """Work out a bundle or run again and list what does not hold.

    Exits with 0 if everything holds, with 1 if something does not, with 4 if the run is
    unfinished or something could not be checked.
    """
    from dataclasses import asdict

    from pybench.cli.io import echo, terminal_options, write_json
    from pybench.evidence.text import render
    from pybench.evidence.verify import verify_bundle, verify_folder
    from pybench.model.errors import UsageError

    if signers is not None and path.is_dir():
        raise UsageError(f"--signers {signers}: a run's folder has no signature; give its bundle")
    verification = verify_folder(path, suite_file) if path.is_dir() else verify_bundle(path, suite_file, signers)
    echo(render(verification, width=terminal_options()["width"]), nl=False)
    write_json(json_file, {"holds": verification.holds, "complete": verification.complete, **asdict(verification)})
    ctx.exit(1 if not verification.holds else 0 if verification.complete else 4)
