"""Calibrated sensor models in the user's cache: one JSON file a GPU, by its UUID, with the driver it was made under."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

from pybench.power.sensor import SensorModel

VERSION = 1


def calibration_path(uuid: str) -> Path:
    """Under ``$XDG_CACHE_HOME``, else ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "pybench" / "sensors" / f"{uuid}.json"


def write_calibration(uuid: str, driver: str, model: SensorModel) -> Path:
    """Store a model, replacing an earlier one of this GPU. Raises ``OSError``."""
    path = calibration_path(uuid)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(json.dumps({"version": VERSION, "driver": driver, "model": asdict(model)}, indent=2) + "\n")
    partial.replace(path)
    return path


def read_calibration(uuid: str, driver: str) -> SensorModel | None:
    """The stored model; ``None`` where there is none for this driver, or none that can be read."""
    try:
        stored = json.loads(calibration_path(uuid).read_text(encoding="utf-8"))
        if stored["version"] != VERSION or stored["driver"] != driver:
            return None
        return SensorModel(**stored["model"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
