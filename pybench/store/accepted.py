"""``accepted.toml``: changes that somebody accepts, each with its reason and the date from which it holds.

::

    schema = 1

    [[accepted]]
    point = "decode[tensor_parallel=2]"
    metric = "output_tokens_per_s"   # left out: every metric of the point
    date = 2026-11-20                # first night of the new level
    reason = "vLLM 0.21 batches prefills apart; agreed in review"
"""

from __future__ import annotations

from datetime import date as Date  # noqa: N812 - the key of the file is date
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pybench.model.errors import FileError, Problem
from pybench.model.gate import Accepted
from pybench.model.workloads.registry import METRICS
from pybench.store.toml.file import read_toml
from pybench.store.toml.lines import nearest_line
from pybench.store.toml.problem_text import did_you_mean, dotted, message_of

_CONFIG = ConfigDict(strict=True, extra="forbid")
_Text = Annotated[str, Field(min_length=1, max_length=1000)]


class _Entry(BaseModel):
    model_config = _CONFIG
    point: _Text
    metric: str | None = None
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
        Accepted(point=one.point, metric=one.metric, since=one.date.isoformat(), reason=one.reason) for one in found
    )
