"""What nodes measured together, from files: pairs, and arrivals at barriers.

::

    {"schema": 1, "pairs": [
        {"round": 1, "nodes": ["node01", "node02"], "metric": "busbw_bytes_per_s", "values": [4.61e10, 4.63e10]}]}

    {"schema": 1, "clock_bound_s": 0.0002, "barriers": [{"node01": 12.001, "node02": 12.004}]}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from pybench.files.safe_folder import read_named
from pybench.files.toml.problem_text import did_you_mean, dotted, message_of
from pybench.fleet.runs import NODE_NAME
from pybench.fleet.values import Barriers, PairFigure
from pybench.model.errors import FileError, Problem, RunFolderError
from pybench.model.workloads.registry import METRICS

_CONFIG = ConfigDict(strict=True, extra="forbid")
_MAX_BYTES = 2**26
_Version = Annotated[int, Field(ge=1, le=1, alias="schema")]
_Node = Annotated[str, Field(pattern=rf"^{NODE_NAME.pattern}$")]
_Positive = Annotated[FiniteFloat, Field(gt=0)]
_Count = Annotated[int, Field(ge=0)]


class _Pair(BaseModel):
    model_config = _CONFIG
    round: _Count | None = None
    nodes: Annotated[list[_Node], Field(min_length=2, max_length=2)]
    metric: str
    values: Annotated[list[_Positive], Field(min_length=1, max_length=10_000)]
    rail: _Count | None = None
    message_bytes: _Count | None = None


class _Pairs(BaseModel):
    model_config = _CONFIG
    schema_version: _Version
    pairs: Annotated[list[_Pair], Field(min_length=1, max_length=200_000)]


class _Barriers(BaseModel):
    model_config = _CONFIG
    schema_version: _Version
    clock_bound_s: Annotated[FiniteFloat, Field(ge=0)]
    barriers: Annotated[list[dict[_Node, FiniteFloat]], Field(min_length=1, max_length=100_000)]


_File = TypeVar("_File", _Pairs, _Barriers)
_KEYS = ("schema", *(name for kind in (_Pair, _Pairs, _Barriers) for name in kind.model_fields))


def read_pairs(path: Path) -> tuple[PairFigure, ...]:
    """Read pairs. Raises ``FileError`` with all problems, or ``RunFolderError`` where the file cannot be read."""
    found = _read(path, TypeAdapter(_Pairs)).pairs
    problems = [
        (f"pairs[{place}]", message) for place, pair in enumerate(found) if (message := _problem(pair)) is not None
    ]
    if problems:
        raise FileError(tuple(Problem(file=str(path), line=None, path=where, message=text) for where, text in problems))
    return tuple(
        PairFigure(
            nodes=(pair.nodes[0], pair.nodes[1]),
            metric=pair.metric,
            values=tuple(pair.values),
            round=pair.round,
            rail=pair.rail,
            message_bytes=pair.message_bytes,
        )
        for pair in found
    )


def read_barriers(path: Path) -> Barriers:
    """Read arrivals. Raises as :func:`read_pairs`."""
    found = _read(path, TypeAdapter(_Barriers))
    return Barriers(clock_bound_s=found.clock_bound_s, arrivals_s=tuple(found.barriers))


def _problem(pair: _Pair) -> str | None:
    if pair.nodes[0] == pair.nodes[1]:
        return f"{pair.nodes[0]} is paired with itself; name two nodes"
    if pair.metric not in METRICS:
        return f"{pair.metric!r} is no metric{did_you_mean(pair.metric, METRICS)}"
    return None


def _read(path: Path, kind: TypeAdapter[_File]) -> _File:
    try:
        data = read_named(path, _MAX_BYTES)
    except (OSError, ValueError, RuntimeError) as error:
        raise RunFolderError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
    try:
        return kind.validate_json(data)
    except ValidationError as error:
        raise FileError(
            tuple(
                Problem(file=str(path), line=None, path=dotted(item["loc"]), message=message_of(item, _KEYS))
                for item in error.errors(include_url=False)[:20]
            )
        ) from error
