"""This host as the others see it."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.metadata import version

from pybench.machine.clock import host_clock
from pybench.machine.environment import snapshot
from pybench.machine.network import network
from pybench.model.build import this_build
from pybench.model.host import Host
from pybench.power.recorder import sampler_unavailable_reason
from pybench.run.engines.base import Launcher
from pybench.run.engines.environment import recorded, tuning
from pybench.run.engines.stage import installed_digest


def this_host(name: str, engine: str, local: Launcher | None, *, alone: bool = False) -> Host:
    """Look at this host once. ``local`` starts its workers where ``engine`` starts no containers.

    ``alone``: all hosts of the run are this machine. Its images are known once the run's plan is.
    """
    boot_id, time_offset_ns = host_clock()
    return Host(
        name=name,
        machine=replace(snapshot(), network=None if alone else network(os.environ)),
        boot_id=boot_id,
        time_offset_ns=time_offset_ns,
        pybench_version=version("pybench"),
        build=this_build(),
        worker_sha256=installed_digest(),
        engine=engine,
        software=None if local is None else local.software(),
        environment=recorded(tuning(os.environ) if local is None else local.tuning(os.environ)),
        power_reason=sampler_unavailable_reason(),
    )
