"""Pairs of nodes measured by another tool, from a file.

::

    {"schema": 1, "pairs": [
        {"round": 1, "nodes": ["node01", "node02"], "metric": "busbw_bytes_per_s", "values": [4.61e10, 4.63e10]}]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from pybench.files.safe_folder import read_named
from pybench.files.toml_file import did_you_mean, dotted, message_of
from pybench.fleet.runs import NODE_NAME
from pybench.fleet.values import PairFigure
from pybench.model.errors import FileError, Problem, RunFolderError
from pybench.model.workloads.registry import METRICS

_MAX_BYTES = 2**26
_Node = Annotated[str, Field(pattern=rf"^{NODE_NAME.pattern}$")]
_Count = Annotated[int, Field(ge=0)]


class _Pair(BaseModel, strict=True, extra="forbid"):
    round: _Count | None = None
    nodes: Annotated[tuple[_Node, ...], Field(min_length=2, max_length=2)]
    metric: str
    values: Annotated[tuple[Annotated[FiniteFloat, Field(gt=0)], ...], Field(min_length=1, max_length=10_000)]
    rail: _Count | None = None
    message_bytes: _Count | None = None


class _Pairs(BaseModel, strict=True, extra="forbid"):
    schema_version: Annotated[int, Field(ge=1, le=1, alias="schema")]
    pairs: Annotated[list[_Pair], Field(min_length=1, max_length=200_000)]


def read_pairs(path: Path) -> tuple[PairFigure, ...]:
    """Read pairs. Raises ``FileError`` with all problems, or ``RunFolderError`` where the file cannot be read."""
    try:
        data = read_named(path, _MAX_BYTES)
    except (OSError, ValueError, RuntimeError) as error:
        raise RunFolderError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
    pairs: list[_Pair] = []
    problems: list[tuple[str, str]] = []
    try:
        pairs = _Pairs.model_validate_json(data).pairs
    except ValidationError as error:
        keys = ("schema", *_Pairs.model_fields, *_Pair.model_fields)
        problems = [(dotted(item["loc"]), message_of(item, keys)) for item in error.errors(include_url=False)[:20]]
    for place, pair in enumerate(pairs):
        if pair.nodes[0] == pair.nodes[1]:
            problems.append((f"pairs[{place}]", f"{pair.nodes[0]} is paired with itself; name two nodes"))
        elif pair.metric not in METRICS:
            text = f"{pair.metric!r} is no metric{did_you_mean(pair.metric, METRICS)}"
            problems.append((f"pairs[{place}]", text))
    if problems:
        raise FileError(tuple(Problem(file=str(path), line=None, path=at, message=text) for at, text in problems))
    return tuple(PairFigure(**pair.model_dump()) for pair in pairs)
