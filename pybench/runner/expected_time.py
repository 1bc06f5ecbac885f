"""How long attempts take, by what they took before: in this run, else in the latest run of the suite here."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pybench.compute.schedule import Attempt
from pybench.model.errors import RunFolderError
from pybench.model.manifest import Manifest
from pybench.model.record import Record
from pybench.store.journal import RunFolder

_MOST_RUNS = 20
"""Folders of other runs that are looked at, the newest first."""


def expected_s(folder: RunFolder, manifest: Manifest, owed: Sequence[Attempt], own: Sequence[Record]) -> float | None:
    """Seconds that ``owed`` will take; ``None`` where one of the points was never measured on this machine."""
    known = _durations_s(own)
    if any(point.digest not in known for point, _ in owed):
        known = {**_durations_s(_earlier(folder, manifest)), **known}
    found = [known.get(point.digest) for point, _ in owed]
    seconds = [value for value in found if value is not None]
    return sum(seconds) if seconds and len(seconds) == len(found) else None


def _durations_s(records: Sequence[Record]) -> dict[str, float]:
    """Median seconds of a good attempt by the digest of its point."""
    found: dict[str, list[float]] = {}
    for record in records:
        if record.ok:
            found.setdefault(record.point_digest, []).append(record.duration_s)
    return {digest: median(values) for digest, values in found.items()}


def _earlier(folder: RunFolder, manifest: Manifest) -> tuple[Record, ...]:
    """Records of the latest run of the same suite on the same machine that has any."""
    others = sorted(folder.path.parent.glob(f"*-{manifest.suite.name}*"), reverse=True)
    for path in [path for path in others if path != folder.path][:_MOST_RUNS]:
        try:
            run = RunFolder.open(path)
            if run.read_manifest().fingerprint == manifest.fingerprint and (records := run.records()):
                return records
        except (RunFolderError, OSError):
            continue
    return ()
