"""The batch size of later attempts."""

from __future__ import annotations

import dataclasses
from typing import Any

from pybench.core.schedule import settings_of_next
from pybench.model.record import Record
from pybench.model.suite import Effort, Point
from pybench.model.wire import Failure
from pybench.model.workloads.generate import Generate
from pybench.model.workloads.train import Train
from tests.build import Build

SETTINGS = Train(backend="torch", model="m", batch_size_per_gpu="auto", sequence_tokens=4)
POINT = Point(id="p", benchmark="p", axes={}, settings=SETTINGS, effort=Effort(), architecture={})


BUILD = Build()


def record(sizes: tuple[float, ...], **changes: Any) -> Record:
    ranks = tuple(BUILD.rank((), number, told={"batch_size_per_gpu": size}) for number, size in enumerate(sizes))
    return dataclasses.replace(BUILD.record(POINT, ranks), **changes)


def test_the_first_good_attempt_decides() -> None:
    """Another point's, or a failed attempt's, does not count."""
    assert settings_of_next(POINT, []) == SETTINGS
    failed = record((9.0,), failure=Failure(cause="signal", message=""))
    found = settings_of_next(POINT, [record((7.0,), point_id="q"), failed, record((6.0, 6.0)), record((8.0,))])
    assert found == dataclasses.replace(SETTINGS, batch_size_per_gpu=6)


def test_numbers_and_other_workloads_stay() -> None:
    """There is nothing to find."""
    for settings in (
        dataclasses.replace(SETTINGS, batch_size_per_gpu=2),
        Generate(backend="torch", model="m", batch_size=1, prompt_tokens=1, output_tokens=2),
    ):
        assert settings_of_next(dataclasses.replace(POINT, settings=settings), [record((6.0,))]) == settings
