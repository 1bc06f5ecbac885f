"""A wall clock that somebody sets while a GPU is recorded: its series goes on, and joules stay as well known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bounds import near
from tests.conftest import ROOT

pytest.importorskip("pybench._nvml", reason="the extension is not built")

SET_BY_S = (-3600.0, -10.0, -0.3, 0.3, 10.0)
AT_S = 2.2


def test_a_clock_that_is_set_costs_no_samples(
    native: Callable[..., Path], fake_nvml: Callable[..., None], tmp_path: Path
) -> None:
    """Each sample that the driver had kept comes once, at its time; bounds are those of the driver's own times.

    All clocks at once, each in a separate process. With no clock set, the windows have no flag.
    """
    fake_nvml(devices=1, load="square:120:680:150", sensor="h200")
    library = native(tmp_path / "wall_clock.so", "tests/native/wall_clock.cpp", "-shared", "-fPIC")
    command = [sys.executable, "-m", "tests.power.recording.wall_clock_recording"]
    recordings = {}
    for set_by_s in (0.0, *SET_BY_S):
        clock = {"WALL_CLOCK_SET_BY_MS": str(round(1000 * set_by_s)), "WALL_CLOCK_AT_MS": str(round(1000 * AT_S))}
        environment = {**os.environ, **clock, "LD_PRELOAD": str(library)}
        recordings[set_by_s] = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    for set_by_s, recording in recordings.items():
        text, _ = recording.communicate()
        assert recording.returncode == 0
        found = json.loads(text)
        assert found["set_by_ns"] / 1e9 == pytest.approx(set_by_s, abs=0.005)
        # The driver itself loses samples where a busy machine drains them late.
        kept_ns = found["kept_ns"][: len(found["recorded_ns"])]
        assert found["recorded_ns"] == pytest.approx(kept_ns, rel=0, abs=1e6)
        for used_j, bounds_j, unset_bounds_j, flags in found["windows"]:
            assert near(used_j, *bounds_j)
            assert bounds_j == pytest.approx(unset_bounds_j, rel=1e-3)
            assert ("clock_step" in flags) == bool(set_by_s)
