"""A point's digest changes with everything that shapes its measurement."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

from pybench.model.suite import Effort, Point
from pybench.model.workloads.node import Matmul
from pybench.model.workloads.registry import SETTINGS_OF
from pybench.model.workloads.settings import defaults

# How often a point is measured, and when it is ended, shapes no record that there is.
_OUTSIDE = {"attempts", "max_attempts", "time_limit_s", "collective_timeout_s"}

_DEFAULTS = Path(__file__).with_name("defaults.json")


def _point(settings: Any, effort: Effort) -> Point:
    return Point(id="p", benchmark="p", axes={}, settings=settings, effort=effort, architecture=None)


@pytest.mark.parametrize("kind", SETTINGS_OF.values(), ids=SETTINGS_OF)
def test_every_setting_shapes_the_digest(kind: type[Any]) -> None:
    """A value of any type: another value changes the digest."""
    settings = object.__new__(kind)
    for field in fields(kind):
        object.__setattr__(settings, field.name, "own")
    before = _point(settings, Effort()).digest
    for field in fields(kind):
        assert _point(replace(settings, **{field.name: "another"}), Effort()).digest != before, field.name


def test_a_setting_at_its_default_is_no_part_of_the_digest() -> None:
    """A later pybench adds settings: runs of before are read, and compared with those of after."""

    @dataclass(frozen=True, kw_only=True)
    class Later(Matmul):
        added: str = "as before"

    before = _point(Matmul(backend="torch", n=4096), Effort()).digest
    assert _point(Later(backend="torch", n=4096), Effort()).digest == before
    assert _point(Later(backend="torch", n=4096, added="new"), Effort()).digest != before


@pytest.mark.parametrize("kind", SETTINGS_OF.values(), ids=SETTINGS_OF)
def test_defaults_stay_as_they_were(kind: type[Any]) -> None:
    """Records do not hold them apart: another default of an old setting would give other work the same digest."""
    written = json.loads(_DEFAULTS.read_text())
    now = defaults(kind)
    name = str(now["workload"])
    if os.environ.get("PYBENCH_UPDATE_GOLDEN"):
        written[name] = {**now, **written.get(name, {})}
        _DEFAULTS.write_text(json.dumps(written, indent=1) + "\n")
    recorded = written.get(name, {})
    changed = {key for key, value in recorded.items() if key in now and json.loads(json.dumps(now[key])) != value}
    assert not changed, "a new default needs a new name"
    assert now.keys() <= recorded.keys(), "record it: PYBENCH_UPDATE_GOLDEN=1 pytest tests/model/test_digest.py"


@pytest.mark.parametrize("name", [field.name for field in fields(Effort)])
def test_effort_shapes_it_where_it_shapes_a_record(name: str) -> None:
    """Steps, warm-up, pauses and whether a process is shared do; the number of attempts does not."""
    settings = Matmul(backend="torch")
    other: dict[str, Any] = {name: not Effort().share_process if name == "share_process" else 77}
    same = _point(settings, Effort()).digest == _point(settings, replace(Effort(), **other)).digest
    assert same == (name in _OUTSIDE)
