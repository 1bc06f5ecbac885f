"""This host as the others see it."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.metadata import version

from pybench.engines.base import Launcher
from pybench.engines.environment import recorded
from pybench.engines.stage import installed_digest
from pybench.machine.clock import host_clock
from pybench.machine.environment import snapshot
from pybench.machine.network import network
from pybench.machine.power_recorder import sampler_unavailable_reason
from pybench.model.host import Host


def this_host(name: str, launcher: Launcher, *, alone: bool = False) -> Host:
    """Look at this host once; ``launcher`` starts its workers. ``alone``: all hosts of the run are this machine."""
    boot_id, time_offset_ns = host_clock()
    container = launcher.container
    return Host(
        name=name,
        machine=replace(snapshot(), network=None if alone else network(os.environ)),
        boot_id=boot_id,
        time_offset_ns=time_offset_ns,
        pybench_version=version("pybench"),
        worker_sha256=installed_digest(),
        engine=launcher.name,
        images=tuple(sorted(image.id for image in container.images)) if container else (),
        software=launcher.software(),
        environment=recorded(launcher.tuning(os.environ), launcher.secrets),
        power_reason=sampler_unavailable_reason(),
    )
