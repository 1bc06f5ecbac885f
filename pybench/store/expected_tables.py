"""Read expected tables, from beside the suite or from those that pybench ships."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from pybench.compute.flops import MODEL_CLASSES
from pybench.model.errors import FileError, Problem
from pybench.model.expected import ANY, ExpectedTable, FigureRow, RatioRow
from pybench.model.workloads.registry import METRICS, METRICS_OF
from pybench.store.shipped import shipped_suites
from pybench.store.suite.profiles import fields_of_workload
from pybench.store.table_keys import required_keys, row_keys
from pybench.store.table_text import table_text
from pybench.store.toml.file import read_toml, refuse
from pybench.store.toml.lines import KeyPath, nearest_line
from pybench.store.toml.problem_text import did_you_mean, key_text, message_of

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def load_tables(suite_path: Path, names: Iterable[str]) -> dict[str, ExpectedTable]:
    """Tables by name, each from ``expected/NAME.toml`` beside the suite, else from the shipped ones.

    Raises ``FileError`` with every problem of the first table that has any, or naming the tables there are.
    """
    folders = [suite_path.parent / "expected", shipped_suites() / "expected"]
    return {name: read_table(_find(suite_path, name, folders)) for name in names}


def read_table(path: Path) -> ExpectedTable:
    """Read one table. Raises ``FileError`` with all its problems."""
    document, lines = read_toml(path, "an expected table")
    problems = _problems(document) or _cross_problems(path.stem, document)
    if problems:
        located = [
            Problem(file=str(path), line=nearest_line(lines, keys), path=key_text(keys, document), message=message)
            for keys, message in problems
        ]
        raise FileError(tuple(sorted(located, key=lambda problem: problem.line or 0)))
    rows = tuple(FigureRow(**row) if "unit" in row else RatioRow(**row) for row in document["row"])
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
    required = required_keys()
    row_fields: dict[str, Any] = {
        name: (kind, ...) if name in required else (kind | None, None) for name, kind in row_keys().items()
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
    return []


def _siblings(loc: KeyPath) -> list[str]:
    if loc[:1] == ("row",):
        return list(row_keys())
    return ["schema", "name", "description", "row"]


def _cross_problems(stem: str, document: dict[str, Any]) -> list[tuple[KeyPath, str]]:
    """Rules across keys."""
    found: list[tuple[KeyPath, str]] = []
    if document["name"] != stem:
        found.append((("name",), f"found {document['name']!r}, must be the file's own name, {stem!r}"))
    for index, row in enumerate(document["row"]):
        own = _absolute_problems(row) if "unit" in row else _ratio_problems(row)
        checks = (_figure_problems(row), _key_problems(row), own)
        found += [(("row", index, *key), message) for check in checks for key, message in check]
    return found


def _figure_problems(row: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    value, minimum, maximum = row.get("value"), row.get("minimum"), row.get("maximum")
    if (value is None) == (minimum is None and maximum is None):
        yield (), "needs either value, or minimum and/or maximum"
    if value is None and "tolerance" in row:
        yield ("tolerance",), "belongs to value; minimum and maximum are exact"
    if minimum is not None and maximum is not None and minimum > maximum:
        yield ("minimum",), f"{minimum} is above maximum = {maximum}"


def _key_problems(row: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    classes = (ANY, *MODEL_CLASSES)
    found = row.get("model_class", ANY)
    if found not in classes:
        yield ("model_class",), f"found {found!r}{did_you_mean(found, classes)}; valid are {', '.join(classes)}"


def _metric_problems(row: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    metrics = list(METRICS_OF.get(row["workload"], {}))
    if row["metric"] not in metrics:
        valid = ", ".join(metrics) or f"none, {row['workload']!r} is no workload"
        yield ("metric",), f"found {row['metric']!r}{did_you_mean(row['metric'], metrics)}; valid are {valid}"
    elif "value" not in row and ("minimum" in row or "maximum" in row):
        gate = "minimum" if METRICS[row["metric"]].higher_is_better else "maximum"
        if gate not in row:
            yield (), f"can't fail anything: {row['metric']} needs a {gate}"


def _ratio_problems(row: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    yield from _metric_problems(row)
    for key in ("where", "per_gpu"):
        if key in row:
            yield (key,), "belongs to absolute figures, those with a unit"
    if row["count"] <= row.get("baseline_count", 1):
        yield ("count",), f"{row['count']} is not above the baseline's count"


def _absolute_problems(row: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    yield from _metric_problems(row)
    unit = METRICS_OF.get(row["workload"], {}).get(row["metric"])
    if unit is not None and unit.unit != row["unit"]:
        yield ("unit",), f"found {row['unit']!r}, {row['metric']} is in {unit.unit!r}"
    valid = fields_of_workload(row["workload"]) if row["workload"] in METRICS_OF else frozenset()
    for name in row.get("where", {}):
        if name not in valid:
            yield ("where", name), f"no setting of {row['workload']}{did_you_mean(name, valid)}"


def write_table(table: ExpectedTable, path: Path) -> None:
    """Write a table, and read it back as any other. Raises ``FileError`` when the file can't be written."""
    if path.suffix != ".toml":
        raise refuse(path, "an expected table is a .toml file")
    try:
        path.write_text(table_text(table), encoding="utf-8")
    except OSError as error:
        raise refuse(path, f"can't be written: {error.strerror}") from error
    read_table(path)
