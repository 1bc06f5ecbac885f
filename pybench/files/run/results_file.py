"""Results of a run, from its folder or from a kept ``results.json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from pybench.core.counts import contradiction
from pybench.files.reader import Reader, decode_json, first_fault
from pybench.files.run.folder import RunFolder
from pybench.files.safe_folder import read_named
from pybench.model.errors import RunFolderError, fault_text
from pybench.model.results import RESULTS_VERSION, Results
from pybench.model.workloads.settings import LARGEST

_RESULTS = Reader(Results)
# Results of the largest kept suite have 0.2 MB, of 4096 points some 16 MB.
_MAX_BYTES = 2**26
_MOST_LEVELS = 32
_REBUILD = "rebuild it with: pybench report RUN --format json"


def results_of(path: Path) -> Results:
    """Results of the run in a folder, judged anew from its journal, or those of a file. Raises ``RunFolderError``."""
    if path.suffix == ".json" and not path.is_dir():
        return read_results(path)
    return RunFolder.open(path).results()


def read_results(path: Path) -> Results:
    """Read a ``results.json``. Raises ``RunFolderError`` unless it is whole and of this version."""
    try:
        data = read_named(path, _MAX_BYTES)
    except (OSError, ValueError, RuntimeError) as error:
        raise RunFolderError(f"{path}: cannot read the results: {fault_text(error, _REBUILD)}") from error
    unread = f"{path}: not a results.json that this pybench reads"
    try:
        results = _RESULTS.read(decode_json(data))
    except ValidationError as error:
        raise RunFolderError(f"{unread}: {first_fault(error)}; {_REBUILD}") from error
    except ValueError as error:
        raise RunFolderError(f"{unread}: {error}; {_REBUILD}") from error
    if results.schema_version != RESULTS_VERSION:
        raise RunFolderError(
            f"{path}: results of version {results.schema_version}, this pybench reads {RESULTS_VERSION}; {_REBUILD}"
        )
    if words := next(_faults(results), None):
        raise RunFolderError(f"{path}: {words}; the file was edited or damaged; {_REBUILD}")
    return results


def _faults(results: Results) -> Iterator[str]:
    """Faults that no run writes, each with its place."""
    for point in results.points:
        for name, figure in point.metrics.items():
            values = (figure.value, figure.low or 0.0, figure.high or 0.0, *figure.medians)
            if max(map(abs, values)) > LARGEST:  # also of one that was written as text
                yield f"{point.id} {name} is larger than any measurement"
    ((name, times),) = Counter(point.id for point in results.points).most_common(1) or (("", 0),)
    if times > 1:
        yield f"points: {name} stands there {times} times"
    for number, point in enumerate(results.points):
        if _is_deeper(point.settings, _MOST_LEVELS):
            yield f"points.{number}.settings: more than {_MOST_LEVELS} levels of lists and objects"
    for number, row in enumerate(results.scaling):
        if min(row.count, row.baseline_count) < 1:
            yield f"scaling.{number}.count: no count of GPUs"
    if words := contradiction(results):
        yield words


def _is_deeper(value: object, levels: int) -> bool:
    """Whether lists and objects lie in each other on more than ``levels``: they are written by recursion."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(inner) and (levels == 0 or any(_is_deeper(item, levels - 1) for item in inner))
