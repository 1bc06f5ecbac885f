"""Whether what a worker said can be believed: its container, clock, GPUs and steps are those that were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pybench.launch.job import ContainerLauncher, Job, Launcher
from pybench.model.container import ContainerRun
from pybench.model.suite import Point
from pybench.model.wire import Failure
from pybench.runner.events import RankLog
from pybench.runner.failure import failure, log_tail


def wrong_container(container: ContainerRun | None, launcher: Launcher, job: Job, log: Path) -> Failure | None:
    """Refuse what ran in no container of the engine's, or in another image than the run's."""
    planned = launcher.container
    if planned is None or not isinstance(launcher, ContainerLauncher):
        return None
    if container is None or container.start_s is None:
        return failure("launch", f"{planned.engine} started no container: {_last_line(log)}", log)
    image = next(image for image in planned.images if image.backend == job.backend)
    if container.image_id != image.id:
        return failure("identity", f"image {container.image_id} ran, asked for {image.id} ({image.name})", log)
    return None


def distrust(ranks: Sequence[RankLog], job: Job, clock: tuple[str, int], point: Point) -> Failure | None:
    """Refuse a measurement whose clock, GPUs or steps are not what was asked for."""
    for rank, log in enumerate(ranks):
        header = log.header
        if header is None:
            return _untrusted(f"rank {rank} sent no header")
        if (header.boot_id, header.time_offset_ns) != clock:
            return _untrusted(f"rank {rank} runs on another clock than this host")
        found, asked = header.all_uuids, job.gpu_uuids
        if asked and not (found and set(found) <= set(asked)):
            return _untrusted(f"rank {rank} ran on {', '.join(found) or None}, asked for one of {', '.join(asked)}")
        if len(log.steps) != point.effort.steps:
            return _untrusted(f"rank {rank} measured {len(log.steps)} steps, asked for {point.effort.steps}")
    used = [log.header.device_uuid for log in ranks if log.header and job.gpu_uuids]
    if twice := [uuid for uuid in used if used.count(uuid) > 1]:
        return _untrusted(f"{used.count(twice[0])} ranks ran on one GPU, {twice[0]}")
    return None


def _untrusted(message: str) -> Failure:
    return Failure(cause="protocol", message=message)


def _last_line(log: Path) -> str:
    lines = [line for line in log_tail(log).splitlines() if line.strip() and not line.startswith("Run 'docker")]
    return lines[-1] if lines else "it gave no reason"
