"""Leave out, visibly, what this machine has no backend for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import replace

from pybench.compute.plan import is_required, skipped
from pybench.compute.required import NOTHING_REQUIRED, Required
from pybench.engines.base import Launcher
from pybench.model.backend import BACKENDS, install
from pybench.model.suite import Plan, Point, Skip
from pybench.model.workloads.settings import Settings


def with_packages(
    plan: Plan, launcher: Launcher, required: Required = NOTHING_REQUIRED, benchmarks: Collection[str] = ()
) -> Plan:
    """``plan`` without the points whose packages are not installed: each is left out, with the remedy as its reason.

    Otherwise one missing package would be an error of every one of its attempts. What is required, by the command line
    or because its benchmark is among ``benchmarks``, is skipped instead, and so missing.
    """
    missing = functools.cache(launcher.missing)
    lacks = {point.id: found for point in plan.points if (found := _lacking(point.settings, missing)) is not None}
    if not lacks:
        return plan
    absent = [point for point in plan.points if point.id in lacks]
    must = [point for point in absent if point.benchmark in benchmarks or is_required(point, required)]
    return replace(
        plan,
        points=tuple(point for point in plan.points if point.id not in lacks),
        skips=(*plan.skips, *(_skip(point, *lacks[point.id]) for point in must)),
        left_out=(*plan.left_out, *(_skip(point, *lacks[point.id]) for point in absent if point not in must)),
    )


def _skip(point: Point, name: str, reason: str) -> Skip:
    return skipped(point, reason, f"{name} (not installed)")


def _lacking(settings: Settings, missing: Callable[[tuple[str, ...]], tuple[str, ...]]) -> tuple[str, str] | None:
    """What is not installed, and a sentence with the remedy."""
    traits = BACKENDS[settings.backend]
    if absent := missing(traits.packages):
        reason = f"backend {settings.backend} needs {' and '.join(absent)}, not found here: {traits.remedy}"
        return settings.backend, reason
    for extra in traits.extras:
        if extra.is_needed(settings) and (absent := missing(extra.packages)):
            return extra.name, f"{extra} needs {' and '.join(absent)}, not found here: {install(extra.name)}"
    return None
