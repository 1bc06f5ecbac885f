"""Starts the worker with a Python of this machine, in no container."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pybench.launch.job import Job

ATTEMPT_VARIABLE = "PYBENCH_ATTEMPT"

# What a worker may inherit: where programs, caches and CUDA live, and how collectives are tuned. Everything else stays
# outside, so that two shells give one measurement.
_KEPT_NAMES = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "USER", "SSL_CERT_FILE"})
_KEPT_PREFIXES = ("CUDA_", "NCCL_", "NVSHMEM_", "TORCH_", "TORCHINDUCTOR_", "TRITON_", "PYTORCH_", "HF_", "GLOO_")
# Set by us or by torchrun: an inherited value would point a rank at the wrong GPU.
_DROPPED = frozenset({"CUDA_VISIBLE_DEVICES"})


@dataclass(frozen=True)
class Local:
    """Launcher for this machine; ``python`` is the interpreter that has the backend."""

    python: str = sys.executable
    name: str = "none"

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
            if name not in _DROPPED and (name in _KEPT_NAMES or name.startswith(_KEPT_PREFIXES))
        }
        kept["CUDA_VISIBLE_DEVICES"] = ",".join(job.gpu_uuids)
        kept["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        kept["HF_HUB_OFFLINE"] = "1"
        kept["PYTHONUNBUFFERED"] = "1"
        kept[ATTEMPT_VARIABLE] = job.token
        if not job.gpu_uuids:
            # One rank is one core: otherwise a single rank would use every core and no speedup could show.
            kept["OMP_NUM_THREADS"] = "1"
        return kept
