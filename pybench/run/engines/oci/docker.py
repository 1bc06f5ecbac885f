"""Docker: containers started by a daemon."""

from __future__ import annotations

from pybench.machine.command import run_command
from pybench.model.container import EngineFacts
from pybench.run.engines.oci.engine import OciEngine, json_object
from pybench.run.engines.oci.gpu_access import GpuAccess, has_cdi


def find_docker() -> EngineFacts:
    """Ask the docker daemon about itself."""
    result = run_command(("docker", "info", "--format", "{{json .}}"))
    info = json_object(result.out)
    if not info.get("ServerVersion"):
        complaint = "; ".join(info.get("ServerErrors") or ()) or result.error_line
        return EngineFacts(name="docker", version=None, reason=f"the docker daemon doesn't answer: {complaint}")
    return EngineFacts(
        name="docker",
        version=info["ServerVersion"],
        rootless=any("name=rootless" in option for option in info.get("SecurityOptions") or ()),
        runtime=info.get("DefaultRuntime"),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
        cdi=bool(info.get("CDISpecDirs")) and has_cdi(tuple(info["CDISpecDirs"])),
        data_root=info.get("DockerRootDir"),
    )


ENGINE = OciEngine("docker", find_docker, lambda: GpuAccess(way="toolkit"))
