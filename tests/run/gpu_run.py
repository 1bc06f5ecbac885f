"""A finished run of the fake worker on two GPUs of the fake driver: joules, traces, a scaling row that passes."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from pybench.machine import health_watch
from pybench.model.progress import Progress
from pybench.report.formats import REPORT_FILES, render
from pybench.report.run.view import RunView
from pybench.run.engines.base import Launch
from pybench.run.prepare import prepare_run
from tests.run.drill import suite_text, table_text
from tests.run.fake_launcher import FakeLauncher

NUM_GPUS = 2


class GpuLauncher(FakeLauncher):
    """A rank on each GPU, which takes steps of a tenth of a second."""

    def behaviour(self, job: Launch) -> dict[str, str]:
        return {**super().behaviour(job), "FAKE_NAME": "NVIDIA H200", "FAKE_STEP_MS": "100"}


def measure(folder: Path, fake_library: Path) -> Path:
    """Run the drill below ``folder``, with its reports; returns the run's folder. Its suite is ``drill.toml``."""
    (folder / "expected").mkdir(parents=True)
    suite = folder / "drill.toml"
    suite.write_text(suite_text(max_attempts=2, time_limit_s=60))
    (folder / "expected" / "drill.toml").write_text(table_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        patch.setenv("PYBENCH_NVML_LIBRARY", str(fake_library))
        settings = {
            "DEVICES": NUM_GPUS,
            "LOAD": "constant:400",
            "DRIVER": "580.7.evidence",
            "CLOCK_EVENT_REASONS": "0;4",
        }
        for name, value in settings.items():
            patch.setenv(f"FAKE_NVML_{name}", str(value))
        # NVML's binding keeps the library for the life of the process; no run depends on this machine's own log.
        patch.setattr(pynvml, "nvmlLib", None)
        patch.setattr(health_watch, "read_xids", lambda: ())
        pynvml._nvmlGetFunctionPointer_cache.clear()
        made = prepare_run(suite, folder / "runs", lambda _needs: GpuLauncher())
        view = RunView.of_folder(made.folder, made.finish(Progress()))
        for name, file in REPORT_FILES.items():
            made.folder.write_report(file, render(view, name))
        pynvml._nvmlGetFunctionPointer_cache.clear()
    return made.folder.path
