"""Starts the worker with a Python of this machine, in no container."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pybench.launch.job import Job
from pybench.launch.worker_environment import NEVER_INHERITED, SECRETS, TUNING_PREFIXES, fixed

ATTEMPT_VARIABLE = "PYBENCH_ATTEMPT"

# Where programs, caches and libraries live. Everything else of the shell stays outside.
_KEPT_NAMES = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "USER", "SSL_CERT_FILE"})


@dataclass(frozen=True)
class Local:
    """Launcher for this machine: ``python`` is the interpreter that has the backend."""

    python: str = sys.executable
    secrets: tuple[str, ...] = ()
    name: str = "none"
    container: None = None

    def argv(self, job: Job) -> tuple[str, ...]:
        """``-I`` keeps the user's site and PYTHONPATH out, ``-B`` keeps the stage free of byte code."""
        ranks = ("--ranks", str(job.num_processes)) if job.num_processes > 1 else ()
        # A worker starts in its attempt's folder, from where a relative path leads elsewhere; a bare name is on PATH.
        python = str(Path(self.python).absolute()) if os.sep in self.python else self.python
        return (python, "-I", "-B", str(job.script), str(job.exchange), *ranks)

    def environment(self, job: Job) -> dict[str, str]:
        """Allow-listed host variables, the job's GPUs by UUID, and one thread per CPU rank."""
        kept = {
            name: value
            for name, value in job.host_environment.items()
            if name in self.secrets
            or (name not in NEVER_INHERITED | SECRETS and (name in _KEPT_NAMES or name.startswith(TUNING_PREFIXES)))
        }
        return {**kept, **fixed(job.gpu_uuids), ATTEMPT_VARIABLE: job.token}
