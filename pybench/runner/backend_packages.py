"""Leave out, visibly, what this machine's Python has no backend for."""

from __future__ import annotations

from dataclasses import replace

from pybench.launch.job import Launcher
from pybench.launch.local import Local
from pybench.machine.python_packages import missing_packages
from pybench.model.backend import BACKENDS
from pybench.model.suite import Plan, Skip
from pybench.model.workloads.settings import BackendName


def with_packages(plan: Plan, launcher: Launcher) -> Plan:
    """``plan`` without the points whose backend is not installed: each becomes a skip that names the remedy.

    One missing backend would otherwise be an error of every one of its attempts. An image brings its own packages.
    """
    if not isinstance(launcher, Local):
        return plan
    backends = {point.settings.backend for point in plan.points}
    reasons = {name: _reason(name, launcher.python) for name in backends}
    skips = [
        Skip(id=point.id, benchmark=point.benchmark, axes=point.axes, num_gpus=point.num_gpus, reason=reason)
        for point in plan.points
        if (reason := reasons[point.settings.backend]) is not None
    ]
    kept = tuple(point for point in plan.points if reasons[point.settings.backend] is None)
    return replace(plan, points=kept, skips=(*plan.skips, *skips))


def _reason(backend: BackendName, python: str) -> str | None:
    traits = BACKENDS[backend]
    missing = missing_packages(python, traits.packages)
    return f"backend {backend} needs {' and '.join(missing)}, not found here: {traits.remedy}" if missing else None
