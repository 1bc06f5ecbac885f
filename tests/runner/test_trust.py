"""GPUs inside against GPUs outside: a measurement on another one, or on one twice, is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pybench.engines.base import Job
from pybench.model.wire import Step, Work
from pybench.runner.events import RankLog
from pybench.runner.trust import distrust
from tests.runner.headers import header

CLOCK = ("boot", 0)
POINT: Any = SimpleNamespace(effort=SimpleNamespace(steps=1))


def job(*uuids: str) -> Job:
    return Job(
        stage=Path("s"),
        exchange=Path("e"),
        backend="torch",
        num_processes=len(uuids),
        gpu_uuids=uuids,
        token="t",
        host_environment={},
    )


def rank(number: int, uuid: str | None) -> RankLog:
    about = header(rank=number, world_size=2, boot_id="boot", device="cuda", device_name="H200", device_uuid=uuid)
    return RankLog(header=about, steps=[Step(index=0, phase="measure", start_ns=0, end_ns=1, work=Work())])


@pytest.mark.parametrize(
    ("inside", "says"),
    [
        (("GPU-a", "GPU-b"), None),
        (("GPU-b", "GPU-a"), None),
        (("GPU-a",), None),  # one process that drives both
        (("GPU-a", "GPU-c"), "rank 1 ran on GPU-c, asked for one of GPU-a, GPU-b"),
        (("GPU-a", None), "rank 1 ran on None, asked for one of GPU-a, GPU-b"),
        (("GPU-b", "GPU-b"), "2 ranks ran on one GPU, GPU-b"),
    ],
)
def test_gpus_are_matched_by_uuid(inside: tuple[str | None, ...], says: str | None) -> None:
    """In any order; the host's sampler knows them by the same names."""
    ranks = [rank(number, uuid) for number, uuid in enumerate(inside)]
    failure = distrust(ranks, job("GPU-a", "GPU-b"), CLOCK, POINT)
    assert (failure.message if failure else None) == says


def test_ranks_on_a_cpu_have_no_uuid() -> None:
    """And share nothing by that."""
    assert distrust([rank(0, None), rank(1, None)], job(), CLOCK, POINT) is None
