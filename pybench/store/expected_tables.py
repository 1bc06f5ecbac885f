"""Read expected tables, from beside the suite or from those that pybench ships."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from pybench.model.errors import FileError, Problem
from pybench.model.expected import ExpectedRow, ExpectedTable
from pybench.store.problem_text import did_you_mean, key_text, message_of
from pybench.store.shipped import shipped_suites
from pybench.store.suite_schema import fields_of
from pybench.store.toml_file import read_toml, refuse
from pybench.store.toml_lines import KeyPath

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def load_tables(suite_path: Path, names: Iterable[str]) -> dict[str, ExpectedTable]:
    """Tables by name, each from ``expected/NAME.toml`` beside the suite, else from the shipped ones.

    Raises ``FileError`` with every problem of the first table that has any, or naming the tables there are.
    """
    folders = [suite_path.parent / "expected", shipped_suites() / "expected"]
    return {name: read_table(_find(suite_path, name, folders)) for name in names}


def read_table(path: Path) -> ExpectedTable:
    """Read one table. Raises ``FileError`` with all its problems."""
    document, lines = read_toml(path)
    problems = _problems(document)
    if problems:
        located = [
            Problem(file=str(path), line=lines.get(keys), path=key_text(keys, document), message=message)
            for keys, message in problems
        ]
        raise FileError(tuple(sorted(located, key=lambda problem: problem.line or 0)))
    rows = tuple(ExpectedRow(**row) for row in document["row"])
    return ExpectedTable(name=document["name"], description=document["description"], rows=rows)


def _find(suite_path: Path, name: str, folders: list[Path]) -> Path:
    for folder in folders:
        path = folder / f"{name}.toml"
        if path.is_file():
            return path
    known = sorted({path.stem for folder in folders for path in folder.glob("*.toml")})
    raise refuse(
        suite_path, f"no expected table {name!r}{did_you_mean(name, known)}; there are {', '.join(known) or 'none'}"
    )


@cache
def _table_model() -> type[BaseModel]:
    required = {f.name for f in dataclasses.fields(ExpectedRow) if f.default is dataclasses.MISSING}
    row_fields: dict[str, Any] = {
        name: (kind, ...) if name in required else (kind | None, None) for name, kind in fields_of(ExpectedRow).items()
    }
    row = create_model("row", __config__=_CONFIG, **row_fields)
    rows = Annotated[list[row], Field(min_length=1, max_length=4096)]  # type: ignore[valid-type]
    version: Any = (Annotated[int, Field(ge=1, le=1)], Field(alias="schema", description="version of this format"))
    return create_model(
        "expected_table",
        __config__=_CONFIG,
        schema_version=version,
        name=(str, ...),
        description=(str, ...),
        row=(rows, ...),
    )


def _problems(document: dict[str, Any]) -> list[tuple[KeyPath, str]]:
    try:
        _table_model().model_validate(document)
    except ValidationError as error:
        return [(item["loc"], message_of(item, _siblings(item["loc"]))) for item in error.errors(include_url=False)]
    return [problem for index, row in enumerate(document["row"]) for problem in _row_problems(index, row)]


def _siblings(loc: KeyPath) -> list[str]:
    if loc[:1] == ("row",):
        return [field.name for field in dataclasses.fields(ExpectedRow)]
    return ["schema", "name", "description", "row"]


def _row_problems(index: int, row: dict[str, Any]) -> list[tuple[KeyPath, str]]:
    """Rules across keys: one figure, in order, and a point above its baseline."""
    problems: list[tuple[KeyPath, str]] = []
    value, minimum, maximum = row.get("value"), row.get("minimum"), row.get("maximum")
    if (value is None) == (minimum is None and maximum is None):
        problems.append((("row", index), "needs either value, or minimum and/or maximum"))
    if minimum is not None and maximum is not None and minimum > maximum:
        problems.append((("row", index, "minimum"), f"{minimum} is above maximum = {maximum}"))
    if row["count"] <= row.get("baseline_count", 1):
        problems.append((("row", index, "count"), f"{row['count']} is not above the baseline's count"))
    return problems
