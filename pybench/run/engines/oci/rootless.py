"""What an engine of an ordinary user can't do on this machine."""

from __future__ import annotations

import os
import pwd
import resource
from collections.abc import Iterator
from pathlib import Path

from pybench.model.container import EngineFacts
from pybench.model.machine import DoctorFinding


def rootless_findings(facts: EngineFacts) -> Iterator[DoctorFinding]:
    """One warning where a rootless engine lacks something; nothing for an engine that runs as root."""
    lacks = _lacks() if facts.rootless else {}
    if lacks:
        found, remedy = ", ".join(lacks), "; ".join(lacks.values())
        yield DoctorFinding.warning(f"{facts.name} rootless", found, remedy)


def _lacks() -> dict[str, str]:
    """What is missing, each with its remedy."""
    lacks = {}
    if "pids" not in _delegated_controllers():
        lacks["without the pids controller"] = "delegate cgroup controllers to users (systemd: Delegate=yes)"
    if _memlock_bytes() != resource.RLIM_INFINITY:
        lacks[f"memlock {_memlock_bytes():,} bytes at most"] = "raise memlock in /etc/security/limits.conf"
    if not _has_subordinate_ids():
        lacks["without subordinate ids"] = "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER"
    return lacks


def _memlock_bytes() -> int:
    """Memory that this user's processes may pin at most; RDMA and NCCL pin their buffers."""
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]


def _has_subordinate_ids() -> bool:
    """Whether this user has ids for the users inside: subuid(5)."""
    user = pwd.getpwuid(os.getuid())
    try:
        lines = Path("/etc/subuid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition(":")[0] in {user.pw_name, str(user.pw_uid)} for line in lines)


def _delegated_controllers() -> list[str]:
    """Controllers of cgroup v2 that this user's processes may use; none on cgroup v1."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8").rpartition("::")[2].strip()
        return Path(f"/sys/fs/cgroup{own}/cgroup.controllers").read_text(encoding="utf-8").split()
    except OSError:
        return []
