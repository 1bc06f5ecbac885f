"""Room for images."""

from __future__ import annotations

import shutil
from pathlib import Path

from pybench.model.machine import Finding

# The largest locked images unpack to some 30 GB.
_MIN_FREE_BYTES = 60 * 2**30


def storage_finding(engine: str, folder: Path) -> Finding:
    """Whether ``folder``, where ``engine`` keeps its images, has room for two large ones."""
    name = f"{engine} storage"
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        found, remedy = f"{folder} can't be read: {error.strerror}", "let its owner find out how much is free"
        return Finding.warning(name, found, remedy)
    found = f"{free / 2**30:.0f} GiB free in {folder}"
    if free >= _MIN_FREE_BYTES:
        return Finding.ok(name, found)
    return Finding.warning(name, found, "free space: images take 30 GB each")
