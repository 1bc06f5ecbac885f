"""Sensor models: what a board's power readings average over.

The model of a GPU is the one calibrated on it, else the one shipped for its kind of board, else the most cautious.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from pathlib import Path

# Longest averaging window in s with which readings still show the load's steps.
LONGEST_WINDOW_S = 0.030
# Version of the calibration file.
CALIBRATION_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class SensorModel:
    """Sensor of one kind of board.

    Every ``period_s`` the sensor takes one value: the mean power of the last ``window_s``, behind a first-order
    low-pass. With a window shorter than the period the power between is not seen, unless the low-pass bridges it. The
    energy counter sums such values, each times the period.

    Attributes:
        source: the measurement or publication.
        calibrated: whether pybench measured this kind of board.
        module: whether readings include the CPU of the GPU's module.
        tau_s: time constant of the low-pass, known to within ``tau_sigma_s``.
        lag_low_s: shortest age of a published counter value.
        lag_high_s: longest age of a published counter value.
        average_span_s: span by which the polled average trails.
    """

    name: str
    source: str
    calibrated: bool = False
    module: bool = False
    period_s: float
    window_s: float
    tau_s: float = 0.0
    tau_sigma_s: float = 0.0
    lag_low_s: float = -0.02
    lag_high_s: float = 0.06
    average_span_s: float = 1.0

    @property
    def seen_fraction(self) -> float:
        """Part of the time that the sensor sees; a low-pass of half a period or more sees all."""
        if self.tau_s >= self.period_s / 2:
            return 1.0
        return min(1.0, self.window_s / self.period_s)

    @property
    def resolves(self) -> bool:
        """Whether readings show the load's shape: measured by pybench, no unseen time, no long average."""
        return self.calibrated and self.seen_fraction >= 1 and self.window_s <= LONGEST_WINDOW_S

    @property
    def blur_s(self) -> float:
        """Largest distance in time between a reading and the power it shows."""
        return max(self.window_s, self.tau_s) + self.period_s / 2


UNKNOWN_SENSOR = SensorModel(
    name="unknown board",
    source="nothing is known of its sensor: the slowest and least complete published one is assumed",
    period_s=0.100,
    window_s=0.020,
    lag_high_s=0.150,
)


def sensor_model(board: str, driver: str, uuid: str) -> SensorModel:
    """The model of a GPU, by its calibration, else by its board's name and driver."""
    return read_calibration(uuid, driver) or shipped_model(board, driver)


@cache
def shipped_model(board: str, driver: str) -> SensorModel:
    """The first entry of ``data/sensors.toml`` that matches the board's name and the driver's version."""
    text = resources.files("pybench").joinpath("data", "sensors.toml").read_text(encoding="utf-8")
    for name, entry in tomllib.loads(text).items():
        if re.search(entry["board"], board) and re.match(entry.get("driver", ""), driver):
            times_s = {f"{key.removesuffix('_ms')}_s": ms / 1e3 for key, ms in entry.items() if key.endswith("_ms")}
            facts = {key: entry[key] for key in ("source", "calibrated", "module") if key in entry}
            return SensorModel(name=name, **facts, **times_s)
    return UNKNOWN_SENSOR


def calibration_path(uuid: str) -> Path:
    """The calibration file of a GPU, under ``$XDG_CACHE_HOME``, else ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "pybench" / "sensors" / f"{uuid}.json"


def write_calibration(uuid: str, driver: str, model: SensorModel) -> Path:
    """Store a model in place of an earlier one of this GPU. Raises ``OSError``."""
    path = calibration_path(uuid)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    stored = {"version": CALIBRATION_VERSION, "driver": driver, "model": asdict(model)}
    partial.write_text(json.dumps(stored, indent=2) + "\n")
    partial.replace(path)
    return path


def read_calibration(uuid: str, driver: str) -> SensorModel | None:
    """The stored model; ``None`` if there is none for this driver, or it can't be read."""
    try:
        stored = json.loads(calibration_path(uuid).read_text(encoding="utf-8"))
        if stored["version"] != CALIBRATION_VERSION or stored["driver"] != driver:
            return None
        return SensorModel(**stored["model"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
