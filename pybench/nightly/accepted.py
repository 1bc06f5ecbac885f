"""``accepted.toml``: changes that somebody accepts, each with its reason and the date from which it holds.

An entry names a point, or the suite of which it accepts all points.

::

    schema = 1

    [[accepted]]
    point = "decode[tensor_parallel=2]"
    metric = "output_tokens_per_s"   # left out: every metric of the point
    date = 2026-11-20                # first night of the new level
    reason = "vLLM 0.21 batches prefills apart; agreed in review"

    [[accepted]]
    suite = "tp_scaling"             # without a point: every point of the suite
    gpu = "GPU-739c0fb5-d7b3-5f86-545d-0c41f279dd44"   # of the machine; left out: on every machine
    date = 2026-11-22
    reason = "a new power supply"
"""

from __future__ import annotations

from datetime import date as Date  # noqa: N812 - the key of the file is date
from pathlib import Path
from typing import Annotated

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pybench.files.problem_text import did_you_mean, dotted, message_of, nearest_line
from pybench.files.toml_file import read_toml
from pybench.model.errors import FileError, Problem
from pybench.model.workloads.registry import METRICS
from pybench.nightly.values import Accepted

_CONFIG = ConfigDict(strict=True, extra="forbid")
_Text = Annotated[str, Field(min_length=1, max_length=1000)]
_NEITHER = "names neither a point nor a suite; give `point`, or `suite` to accept all points of it"


class _Entry(BaseModel):
    model_config = _CONFIG
    point: _Text | None = None
    metric: str | None = None
    suite: _Text | None = None
    gpu: _Text | None = None
    date: Date
    reason: _Text


class _File(BaseModel):
    model_config = _CONFIG
    schema_version: Annotated[int, Field(ge=1, le=1, alias="schema")]
    accepted: Annotated[list[_Entry], Field(max_length=4096)] = []


def read_accepted(path: Path) -> tuple[Accepted, ...]:
    """Read the file. Raises ``FileError`` with all its problems."""
    document, lines = read_toml(path, "a file of accepted changes")
    problems: list[tuple[tuple[str | int, ...], str]] = []
    try:
        found = _File.model_validate(document).accepted
    except ValidationError as error:
        found = []
        keys = [*_Entry.model_fields, "schema", "accepted"]
        problems = [(item["loc"], message_of(item, keys)) for item in error.errors(include_url=False)]
    for number, entry in enumerate(found):
        if entry.point is None and entry.suite is None:
            problems.append((("accepted", number), _NEITHER))
        if entry.metric is not None and entry.metric not in METRICS:
            message = f"{entry.metric!r} is no metric{did_you_mean(entry.metric, METRICS)}"
            problems.append((("accepted", number, "metric"), message))
    if problems:
        raise FileError(
            tuple(
                Problem(file=str(path), line=nearest_line(lines, keys), path=dotted(keys), message=message)
                for keys, message in problems
            )
        )
    return tuple(
        Accepted(
            point=one.point,
            metric=one.metric,
            suite=one.suite,
            gpu=one.gpu,
            since=one.date.isoformat(),
            reason=one.reason,
        )
        for one in found
    )


def entry_text(one: Accepted) -> str:
    """An entry as the file has it. One without a reason is refused by the reader until somebody writes it."""
    values = {
        "suite": one.suite,
        "point": one.point,
        "metric": one.metric,
        "gpu": one.gpu,
        "date": Date.fromisoformat(one.since),
        "reason": one.reason,
    }
    # Of a whole document short tables would be written in one line.
    return f"[[accepted]]\n{tomli_w.dumps({name: value for name, value in values.items() if value is not None})}"
