"""Leave out, visibly, what this machine's Python has no backend for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from pybench.engines.base import Launcher
from pybench.model.backend import BACKENDS, install
from pybench.model.suite import Plan, Skip
from pybench.model.workloads.settings import Settings


def with_packages(plan: Plan, launcher: Launcher) -> Plan:
    """``plan`` without the points whose packages are not installed: each becomes a skip that names the remedy.

    Otherwise one missing package would be an error of every one of its attempts.
    """
    missing = functools.cache(launcher.missing)
    reasons = {point.id: _reason(point.settings, missing) for point in plan.points}
    skips = [
        Skip(id=point.id, benchmark=point.benchmark, axes=point.axes, num_gpus=point.num_gpus, reason=reason)
        for point in plan.points
        if (reason := reasons[point.id]) is not None
    ]
    if not skips:
        return plan
    kept = tuple(point for point in plan.points if reasons[point.id] is None)
    return replace(plan, points=kept, skips=(*plan.skips, *skips))


def _reason(settings: Settings, missing: Callable[[tuple[str, ...]], tuple[str, ...]]) -> str | None:
    traits = BACKENDS[settings.backend]
    if absent := missing(traits.packages):
        return f"backend {settings.backend} needs {' and '.join(absent)}, not found here: {traits.remedy}"
    for extra in traits.extras:
        if extra.is_needed(settings) and (absent := missing(extra.packages)):
            return f"{extra} needs {' and '.join(absent)}, not found here: {install(extra.name)}"
    return None
