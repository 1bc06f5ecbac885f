"""Results of a run, from its folder or from a kept ``results.json``."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pybench.judge.assemble import assemble
from pybench.judge.measurements import Measurements
from pybench.model.errors import RunFolderError
from pybench.model.results import RESULTS_VERSION, Results
from pybench.store.journal import RunFolder
from pybench.store.safe_folder import opened_folder, read_file

_RESULTS = TypeAdapter(Results)
_MAX_BYTES = 2**28


def results_of(path: Path) -> Results:
    """Results of the run in a folder, judged anew from its journal, or those of a file. Raises ``RunFolderError``."""
    if path.suffix == ".json" and not path.is_dir():
        return read_results(path)
    folder = RunFolder.open(path)
    manifest = folder.read_manifest()
    return assemble(manifest, Measurements.of(manifest.plan, folder.records()))


def read_results(path: Path) -> Results:
    """Read a ``results.json``. Raises ``RunFolderError``."""
    try:
        whole = path.resolve()
        with opened_folder(whole.parent) as folder:
            data = read_file(folder, whole.name, _MAX_BYTES)
    except (OSError, ValueError, RuntimeError) as error:
        raise RunFolderError(f"{path}: cannot read the results: {getattr(error, 'strerror', error)}") from error
    return decode_results(path, data)


def decode_results(path: Path, data: bytes) -> Results:
    """The results in ``data``, read from ``path``. Raises ``RunFolderError`` unless whole and of this version."""
    try:
        results = _RESULTS.validate_json(data)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in detail["loc"]) or "file"
        message = f"{path}: not a results.json that this pybench reads: {place}: {detail['msg']}"
        raise RunFolderError(message) from error
    if results.schema_version != RESULTS_VERSION:
        raise RunFolderError(
            f"{path}: results of version {results.schema_version}, this pybench reads {RESULTS_VERSION}; "
            "rebuild them with: pybench report RUN --format json"
        )
    return results
