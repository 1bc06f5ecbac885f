"""Runs of a folder that were made on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pybench.files.run.folder import RunFolder
from pybench.model.errors import RunFolderError
from pybench.model.manifest import Manifest


def earlier_runs(
    root: Path, fingerprint: str, *, most: int, suite: str = "", own: Path | None = None
) -> Iterator[tuple[RunFolder, Manifest]]:
    """The latest ``most`` runs without ``own``, of any suite or of one, the newest first.

    Folders that cannot be read are passed over.
    """
    others = sorted(root.glob(f"*-{suite}*"), reverse=True)
    for path in [path for path in others if path != own][:most]:
        try:
            run = RunFolder.open(path)
            manifest = run.read_manifest()
        except (RunFolderError, OSError):
            continue
        if manifest.fingerprint == fingerprint:
            yield run, manifest
