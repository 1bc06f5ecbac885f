"""Suite, tables and worker held against those that pybench comes with, or that a user trusts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from pybench.evidence.plan import check_suite, check_tables
from pybench.evidence.values import Discrepancy
from pybench.files.expected.file import load_tables
from pybench.files.run.folder import RunFolder
from pybench.files.shipped import shipped_suites
from pybench.files.suite.file import read_suite
from pybench.files.suite.overrides import names_file
from pybench.model.errors import FileError, PybenchError
from pybench.model.expected import ExpectedTable
from pybench.model.manifest import Manifest
from pybench.model.suite import Suite
from pybench.run.engines.stage import installed_digest, worker_digest


def check_origin(manifest: Manifest, suite_file: Path | None) -> Iterator[Discrepancy]:
    """Suite and tables are those that pybench comes with, or those of ``suite_file``."""
    file = suite_file or shipped_suites() / f"{Path(manifest.suite.name).name}.toml"
    suite: Suite | None = None
    tables: dict[str, ExpectedTable] = {}
    if names := [word for word in manifest.options.settings if names_file(word)]:
        # The run names the file, and its sender is not trusted: it is not opened here.
        text = f"with a file of the command line (--set {names[0]}), so its benchmarks are not compared"
        yield Discrepancy(place=f"suite {manifest.suite.name}", text=text, state="not checked")
    elif file.is_file() or suite_file is not None:
        try:
            suite = read_suite(
                file,
                profile=manifest.options.profile,
                machine_kind=manifest.machine.kind,
                gpu_memory_bytes=manifest.machine.gpu_memory_bytes,
                settings=manifest.options.settings,
            )
        except PybenchError as error:
            if suite_file is not None:
                raise
            yield Discrepancy(place=f"suite {manifest.suite.name}", text=f"cannot be read as it was: {error}")
        else:
            if suite_file is not None and suite.name != manifest.suite.name:
                yield Discrepancy(place=f"suite {manifest.suite.name}", text=f"{suite_file} is the suite {suite.name}")
    for name in manifest.tables:
        try:
            tables |= load_tables(file, [name])
        except FileError:
            continue

    origin = "that pybench comes with" if suite_file is None else f"of {suite_file}"
    yield from check_tables(manifest, tables, origin)
    if not names:
        yield from check_suite(manifest, suite, origin)


def check_worker(folder: RunFolder, manifest: Manifest) -> Iterator[Discrepancy]:
    """The worker's source is that which the manifest names, and that of this installation."""
    try:
        found = worker_digest(folder.worker)
    except OSError as error:
        yield Discrepancy(place="worker", text=f"its source cannot be read: {error.strerror}")
        return
    if found != manifest.worker_sha256:
        yield Discrepancy(place="worker", text="its source is not the one that the manifest names")
    elif found != installed_digest():
        text = f"its source is not that of this pybench {version('pybench')}"
        if manifest.pybench_version == version("pybench"):
            text += ": it was changed, or the run was made by another build of this version; check with that build"
            yield Discrepancy(place="worker", text=text)
        else:
            text += f"; check with pybench {manifest.pybench_version}"
            yield Discrepancy(place="worker", text=text, state="not checked")
