"""A launcher of the fake worker, which tests replace the behaviour of."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pybench.run.engines.base import Launch
from pybench.run.engines.local import Local
from pybench.run.engines.process import WorkerProcess

_WORKER = Path(__file__).with_name("fake_worker.py")


class FakeLauncher(Local):
    """Starts the fake worker, by default one that works well and sees the job's GPUs."""

    def argv(self, job: Launch) -> tuple[str, ...]:
        python, *_options = super().argv(job)
        return (python, str(_WORKER), str(job.exchange), *job.rank_options)

    def start(self, job: Launch, log: Path) -> WorkerProcess:
        return self.start_alone(job, log)

    def environment(self, job: Launch) -> dict[str, str]:
        return {**super().environment(job), **self.behaviour(job), "PYTHONPATH": os.pathsep.join(sys.path)}

    def behaviour(self, job: Launch) -> dict[str, str]:
        """Variables that the fake worker reads."""
        return {"FAKE_BEHAVIOUR": "ok", "FAKE_UUIDS": ",".join(job.gpu_uuids)}
