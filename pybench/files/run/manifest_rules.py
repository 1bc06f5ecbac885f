"""Rules that join a manifest with this pybench, and with the records of its run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

from pybench import __version__
from pybench.model.errors import RunFolderError
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.model.workloads.registry import METRICS_OF
from pybench.model.workloads.rules import Range


def require_planned(path: Path, manifest: Manifest, records: Sequence[Record]) -> None:
    """Refuse records that measured something else under an id of the plan. Raises ``RunFolderError``.

    The journal is at fault where other records of the point fit the plan, else the manifest or the version is.
    """
    known = manifest.plan.digests
    fitting = {record.point_id for record in records if known.get(record.point_id) == record.point_digest}
    for number, record in enumerate(records, start=1):
        if known.get(record.point_id, record.point_digest) == record.point_digest:
            continue
        if record.point_id in fitting:
            place = f"{path / 'journal.jsonl'}:{number}"
            raise RunFolderError(f"{place}: {record.point_id} was measured with other settings than the manifest has")
        versions = f"the run's is {manifest.pybench_version}, this is {__version__}"
        raise RunFolderError(
            f"{path / 'manifest.json'}: {record.point_id} was measured with other settings, or by another pybench "
            f"({versions}): report it with that one, or start a new run"
        )


def unusable_values(manifest: Manifest) -> Iterator[str]:
    """Workloads and metrics of another build that this one lacks, and numbers beyond the limits of a suite."""
    for benchmark in manifest.suite.benchmarks:
        metrics = METRICS_OF.get(benchmark.workload)
        if metrics is None:
            yield f"{benchmark.workload!r} is no workload of this pybench"
            return
        for expectation in benchmark.expectations:
            if expectation.metric not in metrics:
                yield f"{expectation.metric!r} is no metric of workload {benchmark.workload}"
    for point in manifest.plan.points:
        for values in (point.settings, point.effort):
            yield from _beyond_limits(cast("Any", values))


def _beyond_limits(values: Any) -> Iterator[str]:  # noqa: ANN401 - settings of any workload
    """Numbers that no suite may have: what is counted up to them never ends."""
    for name, hint in _hints(cast("Any", type(values))).items():
        limits = next((note for note in get_args(hint) if isinstance(note, Range)), None)
        number = getattr(values, name)
        if limits is not None and limits.maximum is not None and isinstance(number, int) and number > limits.maximum:
            yield f"{name} = {number} is above {limits.maximum}, the most that a suite may have"


@cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401 - a class, which mypy takes for no hashable value
    return get_type_hints(kind, include_extras=True)
