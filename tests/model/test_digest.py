"""A point's digest changes with everything that shapes its measurement."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from pybench.model.effort import Effort
from pybench.model.suite import Point
from pybench.model.workloads.matmul import Matmul
from pybench.model.workloads.registry import SETTINGS_OF

# How often a point is measured, and when it is ended, shapes no record that there is.
_OUTSIDE = {"attempts", "max_attempts", "time_limit_s", "collective_timeout_s"}


def _point(settings: Any, effort: Effort) -> Point:
    return Point(id="p", benchmark="p", axes={}, settings=settings, effort=effort, architecture=None)


@pytest.mark.parametrize("kind", SETTINGS_OF.values(), ids=SETTINGS_OF)
def test_every_setting_shapes_the_digest(kind: type[Any]) -> None:
    """Whatever its type: a value that is none of its own stands for another one."""
    settings = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(settings, field.name, 1)
    before = _point(settings, Effort()).digest
    for field in fields(kind):
        assert _point(replace(settings, **{field.name: "another"}), Effort()).digest != before, field.name


@pytest.mark.parametrize("name", [field.name for field in fields(Effort)])
def test_effort_shapes_it_where_it_shapes_a_record(name: str) -> None:
    """Steps, warm-up, pauses and whether a process is shared do; the number of attempts does not."""
    settings = Matmul(backend="torch")
    other: dict[str, Any] = {name: not Effort().share_process if name == "share_process" else 77}
    same = _point(settings, Effort()).digest == _point(settings, replace(Effort(), **other)).digest
    assert same == (name in _OUTSIDE)
