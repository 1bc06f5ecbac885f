"""Whether a process on a GPU belongs to a run, by what the kernel reports of it."""

from __future__ import annotations

import os
import re

from pybench.machine.gpu_processes import ProcessFacts
from pybench.model.container import ContainerRun
from pybench.run.engines.process import ATTEMPT_VARIABLE

# Serves the processes that compute, which are listed beside it. The kernel keeps 15 letters of a name.
_SERVER = "nvidia-cuda-mps"
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


def is_foreign(facts: ProcessFacts, run_mark: str, container: ContainerRun | None) -> bool:
    """Whether the process is no worker of the run ``run_mark``, started by this process; false where that is not known.

    ``container`` is the one that its worker runs in, ``None`` where it runs in none, or none runs.
    """
    if os.getpid() in facts.ancestors or facts.name.startswith(_SERVER):
        return False
    prefix = f"{ATTEMPT_VARIABLE}={run_mark}/".encode()
    if any(item.startswith(prefix) for item in facts.environment or ()):
        return False
    if container is None or not facts.in_container:
        return True
    # Root inside a container is often another user outside, so that only the group's name shows whose it is.
    found = _CONTAINER_ID.findall(facts.cgroup)
    return bool(found) and container.id.removeprefix("sha256:") not in found
