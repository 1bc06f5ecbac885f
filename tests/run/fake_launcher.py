"""A launcher of the fake worker, which tests replace the behaviour of."""

from __future__ import annotations

import os
import sys

from pybench.model.machine import Software
from pybench.run.engines.base import Launch
from pybench.run.engines.local import Local
from tests.programs import FAKE_WORKER


class FakeLauncher(Local):
    """Starts the fake worker, by default one that works well and sees the job's GPUs."""

    def _program(self, job: Launch) -> tuple[str, ...]:  # noqa: ARG002 - no file of the stage
        return (self.interpreter, "-S", str(FAKE_WORKER))

    def environment(self, job: Launch) -> dict[str, str]:
        return {**super().environment(job), **self.behaviour(job), "PYTHONPATH": os.pathsep.join(sys.path)}

    def behaviour(self, job: Launch) -> dict[str, str]:  # noqa: ARG002 - others look at it
        """Variables that the fake worker reads."""
        return {"FAKE_BEHAVIOUR": "ok"}

    def software(self) -> Software:
        return Software(python="3.11.7", packages={"torch": "2.9.0", "transformers": "5.0.0"})

    def missing(self, packages: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ARG002 - nothing is imported
        return ()
