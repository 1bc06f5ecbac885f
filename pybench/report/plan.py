"""The points of a plan, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pybench.compute.memory_fit import memory_need
from pybench.compute.plan import left_out_list
from pybench.compute.session import sessions
from pybench.compute.time_budget import unknown
from pybench.model.container import ContainerRequest
from pybench.model.plan_options import duration_text
from pybench.model.suite import Plan, Point, Suite
from pybench.report.printable import printable


def render(
    suite: Suite, plan: Plan, attempt_s: Mapping[str, float] | None = None, gpu_memory_bytes: float | None = None
) -> str:
    """Points in the order they run, then those that can't run here or were left out, then the totals.

    With ``attempt_s``, the seconds of an attempt by the digest of its point, also how long all attempts take. With
    ``gpu_memory_bytes``, what each GPU has, also what each point needs of it.
    """
    profile = f", profile {suite.profile}" if suite.profile else ""
    attempts = sum(point.effort.attempts for point in plan.points)
    processes = tuple(sessions(plan.points))
    sharing = {point.id: len(session) for session in sorted(processes, key=len) for point, _ in session}
    made = f"{len(plan.points)} points, {attempts} attempts in {len(processes)} processes"
    lines = [
        f"{suite.name}{profile}: {suite.description}",
        *(
            f"  {p.id}: {p.num_gpus} GPUs or ranks, {p.effort.attempts} attempts of {p.effort.steps} steps"
            f"{_shared_by(sharing[p.id])}{_memory(p, gpu_memory_bytes)}"
            for p in plan.points
        ),
        *(f"  {skip.id}: skipped: {skip.reason}" for skip in plan.skips),
        *(f"  {skip.id}: {skip.reason}" for skip in plan.left_out),
        *_container(suite.container),
        *([f"left out: {'; '.join(lacks)}"] if (lacks := left_out_list(plan)) else []),
        f"{made}; {len(plan.skips)} skipped, {len(plan.left_out)} left out",
        *([] if attempt_s is None else [_takes(plan, attempt_s)]),
    ]
    return "".join(f"{printable(line)}\n" for line in lines)


def _container(request: ContainerRequest) -> Iterator[str]:
    """What the suite wants of the host beside its points."""
    wanted = {
        "image": request.image or "",
        "mounts, read-only": ", ".join(f"{mount.source} at {mount.target}" for mount in request.mounts),
        "environment": ", ".join(f"{name}={value}" for name, value in request.environment.items()),
        "secrets passed on": ", ".join(request.secrets),
        "isolation given up": ", ".join(request.relax),
    }
    yield from (f"container {what}: {found}" for what, found in wanted.items() if found)


def _memory(point: Point, gpu_memory_bytes: float | None) -> str:
    need = None if gpu_memory_bytes is None else memory_need(point)
    return "" if need is None or gpu_memory_bytes is None else f", {need} of {gpu_memory_bytes / 1e9:.3g} a GPU"


def _takes(plan: Plan, attempt_s: Mapping[str, float]) -> str:
    total_s = sum(attempt_s.get(point.digest, 0.0) * point.effort.attempts for point in plan.points)
    names = unknown(plan, attempt_s)
    known = f"about {duration_text(total_s)} by earlier runs" if len(names) < len(plan.points) else ""
    rest = f"no earlier run shows how long {len(names)} of {len(plan.points)} points take" if names else ""
    return "; ".join(text for text in (known, rest) if text) or "nothing to measure"


def _shared_by(num_points: int) -> str:
    return f", process shared by {num_points} points" if num_points > 1 else ""
