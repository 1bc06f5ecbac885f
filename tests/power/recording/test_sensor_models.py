"""Sensor model of a GPU: its calibration, its board's model, or the most cautious one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pybench.power.sensor import (
    UNKNOWN_SENSOR,
    SensorModel,
    calibration_path,
    read_calibration,
    sensor_model,
    shipped_model,
    write_calibration,
)

OWN = SensorModel(name="calibrated", source="here", calibrated=True, period_s=0.1, window_s=0.025)


@pytest.mark.parametrize(
    ("board", "entry", "calibrated", "seen"),
    [
        ("NVIDIA H200", "hopper-sxm", True, 1.0),
        ("NVIDIA H100 80GB HBM3", "hopper-sxm", True, 1.0),
        ("NVIDIA H100 PCIe", "hopper", False, 0.25),
        ("NVIDIA H200 NVL", "hopper", False, 0.25),
        ("NVIDIA H100 64GB HBM2", "hopper", False, 0.25),
        ("NVIDIA H20", "hopper", False, 0.25),
        ("NVIDIA GH200 480GB", "grace-hopper", False, 0.2),
        ("NVIDIA A100-SXM4-80GB", "ga100", False, 25 / 101),
        ("Tesla V100-SXM2-32GB", "pascal-volta", False, 0.5),
        ("NVIDIA GeForce RTX 4090", "ampere-ada-turing", False, 1.0),
        ("Quadro RTX 6000", "ampere-ada-turing", False, 1.0),
        ("Some GPU of 2031", "unknown board", False, 0.2),
    ],
)
def test_a_boards_model(board: str, entry: str, calibrated: bool, seen: float) -> None:
    model = shipped_model(board, "580.159.04")
    assert (model.name, model.calibrated) == (entry, calibrated)
    assert model.seen_fraction == pytest.approx(seen)


def test_a_driver_that_was_not_measured_has_the_published_model() -> None:
    assert shipped_model("NVIDIA H100 80GB HBM3", "450.10").name == "hopper"


def test_a_calibration_goes_before_the_boards_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this GPU under this driver; another driver may average otherwise."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write_calibration("GPU-1", "580.1", OWN)
    assert sensor_model("NVIDIA H200", "580.1", "GPU-1") == OWN
    assert sensor_model("NVIDIA H200", "580.2", "GPU-1").name == "hopper-sxm"
    assert sensor_model("NVIDIA H200", "580.1", "GPU-2").name == "hopper-sxm"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1, "driver": "580.1", "model": {"name": 1}}'])
def test_a_damaged_calibration_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = calibration_path("GPU-1")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert read_calibration("GPU-1", "580.1") is None


def test_a_low_pass_as_long_as_half_a_period_leaves_nothing_unseen() -> None:
    assert replace(UNKNOWN_SENSOR, tau_s=0.05).seen_fraction == 1.0
    assert replace(UNKNOWN_SENSOR, tau_s=0.02).seen_fraction == pytest.approx(0.2)
