"""Whether a measurement can be trusted: its clock, GPUs and steps are those of the order."""

from __future__ import annotations

from collections.abc import Sequence

from pybench.engines.base import Job
from pybench.model.suite import Point
from pybench.model.wire import Failure
from pybench.runner.events import RankLog


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
