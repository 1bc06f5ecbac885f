"""The sensor model of a GPU: as calibrated on it, else the one shipped for its kind of board, else the most modest."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any

from pybench.power.calibration_file import read_calibration
from pybench.power.sensor import UNKNOWN_SENSOR, SensorModel


def sensor_model(board: str, driver: str, uuid: str) -> SensorModel:
    """What is known of the sensor of the GPU named by UUID, of a board of this name, under this driver."""
    return read_calibration(uuid, driver) or shipped_model(board, driver)


@cache
def shipped_model(board: str, driver: str) -> SensorModel:
    """The first entry of the data file that matches the board's name and the driver's version."""
    for name, entry in _entries().items():
        if re.search(entry["board"], board) and re.match(entry.get("driver", ""), driver):
            return _model(name, entry)
    return UNKNOWN_SENSOR


def _model(name: str, entry: dict[str, Any]) -> SensorModel:
    times_s = {f"{key.removesuffix('_ms')}_s": value / 1e3 for key, value in entry.items() if key.endswith("_ms")}
    return SensorModel(name=name, source=entry["source"], calibrated=entry.get("calibrated", False), **times_s)


@cache
def _entries() -> dict[str, dict[str, Any]]:
    text = resources.files("pybench").joinpath("data", "sensors.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
