"""Podman: containers started by the client itself, also for ordinary users."""

from __future__ import annotations

import shutil

from pybench.machine.command import run_command
from pybench.model.container import EngineFacts
from pybench.run.engines.oci.engine import OciEngine, json_object
from pybench.run.engines.oci.gpu_access import GpuAccess, device_nodes, has_cdi


def find_podman() -> EngineFacts:
    """Ask podman about itself."""
    result = run_command(("podman", "info", "--format", "json"))
    info = json_object(result.out)
    if not result.ok or "host" not in info:
        return EngineFacts(name="podman", version=None, reason=f"podman does not work here: {result.error_line}")
    host = info["host"]
    return EngineFacts(
        name="podman",
        version=info.get("version", {}).get("Version"),
        rootless=bool(host.get("security", {}).get("rootless")),
        runtime=host.get("ociRuntime", {}).get("name"),
        runtimes=tuple(name for name in ("crun", "runc") if shutil.which(name)),
        cdi=has_cdi(),
        data_root=info.get("store", {}).get("graphRoot"),
    )


ENGINE = OciEngine("podman", find_podman, lambda: GpuAccess(way="nodes", device_nodes=device_nodes()))
