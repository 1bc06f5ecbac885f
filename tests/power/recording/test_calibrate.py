"""Calibration of a fake driver's sensor: the load is the fake's own, its edges known from its clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pybench.cli.main import main
from pybench.model.errors import MachineError
from pybench.power import calibrate as calibrate_module
from pybench.power.calibrate import Calibration, Schedule, calibrate, run_square_load
from pybench.power.sensor import sensor_model, shipped_model, write_calibration
from pybench.power.text import calibration_text

pytest.importorskip("pybench._nvml", reason="the extension is not built")

UUID = "GPU-00000000-fake-4000-8000-000000000000"
HALF_MS = 77
NUM_PERIODS = 24


def test_the_fake_h200_is_fitted_and_stored(
    fake_nvml: Callable[..., None], fake_epoch_ns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Low for 77 ms, high for 77 ms: a low-pass of 10.9 ms, found within 2 ms."""
    fake_nvml(devices=1, load=f"square:100:600:{HALF_MS}", sensor="h200")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        calibrate_module, "SCHEDULE", ((HALF_MS / 1e3, HALF_MS / 1e3, NUM_PERIODS * 2 * HALF_MS / 1e3),)
    )

    def wait(_uuid: str, _schedule: Schedule) -> list[tuple[int, int]]:
        first = (time.monotonic_ns() - fake_epoch_ns) // (2 * HALF_MS * 1_000_000) + 1
        time.sleep((NUM_PERIODS + 2) * 2 * HALF_MS / 1e3)
        starts_ns = [fake_epoch_ns + ((first + k) * 2 + 1) * HALF_MS * 1_000_000 for k in range(NUM_PERIODS)]
        return [(start_ns, start_ns + HALF_MS * 1_000_000) for start_ns in starts_ns]

    found = calibrate(UUID, wait)
    assert found.reason is None
    assert found.model is not None
    assert found.model.tau_s == pytest.approx(10.9e-3, abs=2e-3)
    assert replace(found.model, tau_s=10.9e-3).resolves  # the fit may lie just below half a period
    write_calibration(found.uuid, found.driver, found.model)
    assert sensor_model(found.board, found.driver, found.uuid) == found.model
    assert "low-pass" in calibration_text(found, tmp_path)


def test_a_load_that_moves_nothing_is_no_calibration(
    fake_nvml: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml(devices=1, load="constant:400", sensor="h200")
    monkeypatch.setattr(calibrate_module, "SCHEDULE", ((0.2, 0.2, 1.2),))

    def wait(_uuid: str, _schedule: Schedule) -> list[tuple[int, int]]:
        now_ns = time.monotonic_ns()
        time.sleep(1.2)
        return [(now_ns + k * 400_000_000, now_ns + k * 400_000_000 + 200_000_000) for k in range(3)]

    found = calibrate(UUID, wait)
    assert found.model is None
    assert found.reason is not None
    assert "not stored" in calibration_text(found, None)


def test_a_fit_that_can_not_be_stored_is_shown_all_the_same(
    fake_nvml: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute of load a GPU is not lost to a cache that is no folder."""
    fake_nvml(devices=1)
    (tmp_path / "cache").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = shipped_model("NVIDIA H200", "580.00")
    fitted = Calibration(UUID, 0, "NVIDIA H200", "580.00", None, model, None)
    monkeypatch.setattr(calibrate_module, "calibrate", lambda _uuid: fitted)
    file = tmp_path / "found.json"
    result = CliRunner().invoke(main, ["power", "calibrate", "--json", str(file)])
    assert result.exit_code == 3
    assert f"not stored: {tmp_path / 'cache'}" in result.stdout
    assert result.stderr == "pybench: power calibrate: not every GPU's sensor was fitted and stored\n"
    assert json.loads(file.read_text())[0]["model"] == asdict(model)


def test_without_a_gpu_for_torch_the_load_fails_in_one_line() -> None:
    with pytest.raises(MachineError, match=r"power calibrate: the load failed: .*; it needs torch with CUDA"):
        run_square_load("GPU-none", ((0.1, 0.1, 0.2),))
