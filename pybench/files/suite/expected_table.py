"""Read and write expected tables: beside the suite, or shipped with pybench."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, create_model

from pybench.core.flops import MODEL_CLASSES
from pybench.files.safe_folder import opened_folder, write_file
from pybench.files.shipped import shipped_suites
from pybench.files.suite.profiles import fields_of_workload
from pybench.files.suite.schema import fields_of
from pybench.files.toml_file import MOST_NAMES, KeyProblem, did_you_mean, faults, message_of, read_toml, refuse
from pybench.model.errors import fault_text
from pybench.model.machine import Network, Switch
from pybench.model.suite import ANY, ExpectedRow, ExpectedTable, FigureRow, RatioRow
from pybench.model.text import abridged, plural
from pybench.model.workloads.registry import METRICS_OF

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def load_tables(suite_path: Path, names: Iterable[str]) -> dict[str, ExpectedTable]:
    """Tables by name, from ``expected/`` beside the suite, else shipped ones. Raises ``FileError``."""
    folders = [suite_path.parent / "expected", shipped_suites() / "expected"]
    return {name: read_table(_find(suite_path, name, folders)) for name in names}


def read_table(path: Path) -> ExpectedTable:
    """Read one table. Raises ``FileError`` with all its problems."""
    document, check = read_toml(path, "an expected table")
    top, of_type = ("schema", "name", "description", "row"), faults(_table_model(), document)
    check("schema", ((f["loc"], message_of(f, row_keys() if f["loc"][:1] == ("row",) else top)) for f in of_type))
    rows = tuple(_row(row) for row in document["row"])
    table = ExpectedTable(name=document["name"], description=document["description"], rows=rows)
    check("rule", _table_problems(table, document["row"], path.stem))
    return table


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
    of_ratio, of_figure = _defaults(RatioRow), _defaults(FigureRow)
    required = {name for name in of_ratio if of_ratio[name] is of_figure.get(name) is dataclasses.MISSING}
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


def _row(written: dict[str, Any]) -> ExpectedRow:
    """Only figures have a unit. A key of the other form is left out here, and refused by a rule."""
    kind = FigureRow if "unit" in written else RatioRow
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in written.items() if name in names})


def write_table(table: ExpectedTable, path: Path) -> None:
    """Write a table and read it back. Raises ``FileError``, also where the file has rows that it lacks."""
    if path.suffix != ".toml":
        raise refuse(path, "an expected table is a .toml file")
    kept = {row.key for row in table.rows}  # a row of the same key is replaced, every other one would be lost
    if path.exists() and (lost := [row for row in read_table(path).rows if row.key not in kept]):
        named = abridged([_row_text(row) for row in lost], MOST_NAMES, "; ")
        raise refuse(
            path,
            f"holds {plural(len(lost), 'row')} that this run does not give ({named}), and is left as it is; "
            "give -o another FILE, or print the table without -o and add its rows by hand",
        )
    target = path.resolve()
    try:
        with opened_folder(target.parent) as folder:
            write_file(folder, target.name, table_text(table).encode())
    except OSError as error:
        raise refuse(path, f"can't be written: {fault_text(error, 'make its folder first')}") from error
    read_table(path)


def _row_text(row: ExpectedRow) -> str:
    where = "".join(f", {name} {value}" for name, value in row.where.items())
    nodes = f" on {row.nodes} nodes" if row.nodes > 1 else ""
    return f"{row.kind} {row.metric} of {row.workload}, machine {row.machine}, count {row.count}{nodes}{where}"


_FORM = "form"
"""Not written: it follows from the unit, which only figures have."""


def row_keys() -> dict[str, Any]:
    """Keys with their checked types."""
    return {name: kind for name, kind in (fields_of(RatioRow) | fields_of(FigureRow)).items() if name != _FORM}


def _table_problems(table: ExpectedTable, written: list[dict[str, Any]], file_name: str) -> Iterator[KeyProblem]:
    """Every rule that the table breaks; ``written`` rows may have keys of the other form."""
    if table.name != file_name:
        yield ("name",), f"found {table.name!r}, must be the file's own name, {file_name!r}"
    first: dict[str, int] = {}
    for index, (row, keys) in enumerate(zip(table.rows, written, strict=True)):
        for path, message in _row_problems(row, keys):
            yield ("row", index, *path), message
        if (other := first.setdefault(row.key, index)) != index:
            yield ("row", index), f"has every key of row[{other}], which alone would be used; keep one of them"


def _row_problems(row: ExpectedRow, keys: Collection[str]) -> Iterator[KeyProblem]:
    if (row.value is None) == (row.minimum is None and row.maximum is None):
        yield (), "needs either value, or minimum and/or maximum"
    if row.value is None and "tolerance" in keys:
        yield ("tolerance",), "belongs to value; minimum and maximum are exact"
    if row.minimum is not None and row.maximum is not None and row.minimum > row.maximum:
        yield ("minimum",), f"{row.minimum} is above maximum = {row.maximum}"
    for key, valid in (("model_class", (ANY, *MODEL_CLASSES)), ("nvls", (ANY, *get_args(Switch)))):
        if (value := getattr(row, key)) not in valid:
            yield (key,), f"found {value!r}{did_you_mean(value, valid)}; valid are {', '.join(valid)}"
    if row.nodes > 1 and row.fabric not in (networks := get_args(Network)):
        yield ("fabric",), f"found {row.fabric!r}; between {row.nodes} nodes it is one of {', '.join(networks)}"
    yield from _metric_problems(row)
    settings = fields_of_workload(row.workload) if row.workload in METRICS_OF else frozenset()
    for name in row.where:
        if name not in settings:
            yield ("where", name), f"no setting of {row.workload}{did_you_mean(name, settings)}"
    yield from _ratio_problems(row, keys) if isinstance(row, RatioRow) else _figure_problems(row, keys)


def _metric_problems(row: ExpectedRow) -> Iterator[KeyProblem]:
    metrics = METRICS_OF.get(row.workload, {})
    if row.metric not in metrics:
        valid = ", ".join(metrics) or f"none, {row.workload!r} is no workload"
        yield ("metric",), f"found {row.metric!r}{did_you_mean(row.metric, metrics)}; valid are {valid}"
        return
    gate = "minimum" if metrics[row.metric].higher_is_better else "maximum"
    one_sided = row.value is None and (row.minimum is None) != (row.maximum is None)
    if one_sided and getattr(row, gate) is None:
        yield (), f"can't fail anything: {row.metric} needs a {gate}"


def _ratio_problems(row: RatioRow, keys: Collection[str]) -> Iterator[KeyProblem]:
    if "where" in keys and "baseline_count" not in keys:
        yield ("where",), "belongs to absolute figures, those with a unit, and to ratios that give baseline_count"
    if "per_gpu" in keys:
        yield ("per_gpu",), "belongs to absolute figures, those with a unit"
    if row.count <= row.baseline_count:
        yield ("count",), f"{row.count} is not above the baseline's count"


def _figure_problems(row: FigureRow, keys: Collection[str]) -> Iterator[KeyProblem]:
    metric = METRICS_OF.get(row.workload, {}).get(row.metric)
    if metric is not None and metric.unit != row.unit:
        yield ("unit",), f"found {row.unit!r}, {row.metric} is in {metric.unit!r}"
    if "baseline_count" in keys:
        yield ("baseline_count",), "belongs to ratios, those without a unit"


def table_text(table: ExpectedTable) -> str:
    """The whole file; keys that have their default are left out."""
    rows = [_written_row(row) for row in table.rows]
    return tomli_w.dumps({"schema": 1, "name": table.name, "description": table.description, "row": rows})


def _written_row(row: ExpectedRow) -> dict[str, object]:
    # A ratio with settings names its baseline: a figure whose unit was forgotten does not.
    kept = {"baseline_count"} if row.where else set()
    defaults = {name: default for name, default in _defaults(type(row)).items() if name != _FORM}
    values = {name: _rounded(getattr(row, name)) for name in defaults}
    return {name: value for name, value in values.items() if value != defaults[name] or name in kept}


def _defaults(kind: type[ExpectedRow]) -> dict[str, object]:
    """Defaults of a row's keys; ``MISSING`` for a key that is always written."""
    unset = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    return {f.name: f.default if f.default_factory is unset else f.default_factory() for f in fields}


def _rounded(value: object) -> object:
    """Figures are written with six digits."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value
