"""A suite document of valid shape as values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pybench.files.suite.container import container_request
from pybench.files.suite.own_files import OwnFiles
from pybench.files.suite.profiles import Fields, Profile, WrittenBenchmark, WrittenSuite
from pybench.files.toml_file import KeyProblem
from pybench.model.suite import Comparison, Effort, Expectation, Limits, Scaling, TableFigure
from pybench.model.workloads.registry import SETTINGS_OF

_FORMS = (
    "needs either scaling, along and a table if there is one, or table alone, or minimum or maximum (or both), "
    "or one of below and above (with factor, or widening_along if it must widen), and not a mix"
)


def form_problems(document: dict[str, Any]) -> Iterator[KeyProblem]:
    """Tables of expectations whose keys make no expectation."""
    for index, table in enumerate(document["benchmark"]):
        for number, expect in enumerate(table.get("expect", [])):
            for path, message in _problems(expect):
                yield ("benchmark", index, "expect", number, *path), message


def _problems(expect: dict[str, Any]) -> Iterator[KeyProblem]:
    scaling = [key for key in ("scaling", "along", "table") if key in expect]
    limits = [key for key in ("minimum", "maximum") if key in expect]
    orders = [key for key in ("below", "above") if key in expect]
    kinds = [bool(scaling or "baseline" in expect), bool(limits), bool(orders)]
    is_table_alone = scaling == ["table"] and "baseline" not in expect
    is_whole = not scaling or is_table_alone or {"scaling", "along"} <= set(scaling)
    if "gpus" in expect and not (is_table_alone and kinds.count(True) == 1):
        yield ("gpus",), "goes with table alone; remove it"
    if kinds.count(True) != 1 or not is_whole or len(orders) > 1:
        yield (), _FORMS
    elif not orders:
        for key in [key for key in ("factor", "widening_along", "claim") if key in expect]:
            yield (key,), "goes with below or above; add one of them"
    elif {"claim", "widening_along", "factor"} <= set(expect):
        yield ("factor",), "has a claim of its own; remove it or widening_along"


def expectation_of(table: dict[str, Any]) -> Expectation:
    """Build it from keys that ``form_problems`` found no fault with."""
    if "along" in table:
        return Scaling(**table)
    if "table" in table:
        return TableFigure(**table)
    order = next((key for key in ("below", "above") if key in table), None)
    if order is None:
        return Limits(**table)
    rest = {key: value for key, value in table.items() if key != order}
    return Comparison(**{**rest, "order": order, "other": table[order]})


_FIELDS = frozenset(name for kind in (Effort, *SETTINGS_OF.values()) for name in kind.__dataclass_fields__)


def written_suite(document: dict[str, Any], files: OwnFiles) -> WrittenSuite:
    """Build it from a document that the schema and ``form_problems`` found no fault with, and its ``files``."""
    return WrittenSuite(
        name=document["name"],
        description=document.get("description", ""),
        benchmarks=tuple(
            WrittenBenchmark(
                name=table["name"],
                workload=table["workload"],
                fields=_fields(table, files),
                expectations=tuple(expectation_of(values) for values in table.get("expect", [])),
                required=table.get("required", False),
                round_up_batch=table.get("round_up_batch", False),
            )
            for table in document["benchmark"]
        ),
        profiles={name: _profile(table, files) for name, table in document.get("profile", {}).items()},
        container=container_request(document.get("container", {})),
        own_models=files.architectures,
    )


def _profile(table: dict[str, Any], files: OwnFiles) -> Profile:
    benchmarks = {name: _fields(override, files) for name, override in table.get("benchmark", {}).items()}
    return Profile(everywhere=_fields(table, files), benchmarks=benchmarks)


def _fields(table: dict[str, Any], files: OwnFiles) -> Fields:
    return Fields(
        values={key: value for key, value in files.named(table).items() if key in _FIELDS and key != "workload"},
        axes={name: tuple(values) for name, values in files.named(table.get("axes", {})).items()},
        job=table.get("job", {}),
        omit=table.get("omit", False),
    )
