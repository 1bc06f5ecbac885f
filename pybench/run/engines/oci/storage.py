"""Room for images."""

from __future__ import annotations

import shutil
from pathlib import Path

from pybench.model.machine import DoctorFinding
from pybench.model.text import amount_text

# The largest locked images unpack to about as much.
_IMAGE_BYTES = 30 * 2**30
_MIN_FREE_BYTES = 2 * _IMAGE_BYTES


def storage_finding(engine: str, folder: Path) -> DoctorFinding:
    """Whether ``folder``, where ``engine`` keeps its images, has room for two large ones."""
    name = f"{engine} storage"
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        found, remedy = f"{folder} can't be read: {error.strerror}", "let its owner find out how much is free"
        return DoctorFinding.warning(name, found, remedy)
    found = f"{amount_text(free)} free in {folder}"
    if free >= _MIN_FREE_BYTES:
        return DoctorFinding.ok(name, found)
    return DoctorFinding.warning(name, found, f"free space: images take {amount_text(_IMAGE_BYTES)} each")
