"""Read a suite file strictly: every problem is found and reported at once."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from pybench.model.effort import Effort
from pybench.model.errors import FileError, Problem
from pybench.model.suite import Benchmark, Suite
from pybench.model.workloads.registry import SETTINGS_OF, setting_names
from pybench.store.suite.checks import cross_checks
from pybench.store.suite.container import container_request
from pybench.store.suite.expectations import expectation_of
from pybench.store.suite.profiles import is_omitted, tables_under
from pybench.store.suite.schema import NUMBER, WORD, suite_model, suite_schema
from pybench.store.toml.file import read_toml, refuse
from pybench.store.toml.lines import KeyPath, nearest_line
from pybench.store.toml.problem_text import describe, did_you_mean, key_text, message_of

__all__ = ["read_suite", "suite_schema"]

MAX_PROBLEMS = 50


def read_suite(path: Path, *, profile: str | None, machine_kind: str) -> Suite:
    """Read, check and apply a profile: ``profile``, else the one named like ``machine_kind`` if the suite has it.

    Raises ``FileError`` with every problem in the file, also those in profiles that aren't applied.
    """
    document, lines = read_toml(path, "a suite")
    problems = _shape_problems(document)
    if not problems:
        profiles = document.get("profile", {})
        if profile is not None and profile not in profiles:
            valid = ", ".join(profiles) or "none, the suite has no profiles"
            raise refuse(path, f"no profile {describe(profile)}{did_you_mean(profile, profiles)}; valid: {valid}")
        chosen = profile if profile is not None else machine_kind if machine_kind in profiles else None
        views = {name: tables_under(document, name) for name in (chosen, *profiles)}
        problems = cross_checks(document, views)
    if problems:
        raise FileError(_located(path, document, lines, problems))
    return _build(path, document, views[chosen], chosen)


def _shape_problems(document: dict[str, Any]) -> list[tuple[KeyPath, str]]:
    try:
        suite_model().model_validate(document)
    except ValidationError as error:
        return [
            (_path(item["loc"]), message_of(item, _siblings(item["loc"])))
            for item in error.errors(include_url=False)[: MAX_PROBLEMS + 1]
        ]
    return []


def _path(loc: tuple[str | int, ...]) -> KeyPath:
    """Drop the workload that pydantic puts behind a benchmark's index, and its own marks in brackets."""
    path = (*loc[:2], *loc[3:]) if loc[:1] == ("benchmark",) else loc
    return tuple(part for part in path if part not in {"[key]", WORD, NUMBER})


def _siblings(loc: tuple[str | int, ...]) -> list[str]:
    """Keys that are valid where ``loc``'s last one stands."""
    model: Any = suite_model()
    for part in loc[:-1]:
        model = _child(model, part)
    fields: dict[str, Any] = model.model_fields if isinstance(model, type) and issubclass(model, BaseModel) else {}
    return [field.alias or name for name, field in fields.items()]


def _child(hint: Any, part: str | int) -> Any:  # noqa: ANN401 - types are values here
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        field = hint.model_fields.get(str(part))
        return field.annotation if field else None
    arguments = getattr(hint, "__args__", ())
    if isinstance(part, str) and part in SETTINGS_OF:
        return next((kind for kind in arguments if kind.__name__ == f"{part}_benchmark"), None)
    last = arguments[-1] if arguments else None
    return getattr(last, "__origin__", last) if getattr(last, "__metadata__", None) else last


def _located(
    path: Path, document: dict[str, Any], lines: dict[KeyPath, int], problems: list[tuple[KeyPath, str]]
) -> tuple[Problem, ...]:
    located = [
        Problem(file=str(path), line=nearest_line(lines, keys), path=key_text(keys, document), message=message)
        for keys, message in problems[:MAX_PROBLEMS]
    ]
    located.sort(key=lambda problem: problem.line or 0)
    if len(problems) > MAX_PROBLEMS:
        located.append(Problem(file=str(path), line=None, path="", message="more problems follow; fix these first"))
    return tuple(located)


def _build(path: Path, document: dict[str, Any], tables: list[dict[str, Any]], profile: str | None) -> Suite:
    return Suite(
        name=document["name"],
        description=document.get("description", ""),
        benchmarks=tuple(_benchmark(table) for table in tables if not is_omitted(document, table, profile)),
        profile=profile,
        path=str(path),
        container=container_request(document.get("container", {})),
    )


def _benchmark(table: dict[str, Any]) -> Benchmark:
    fields = setting_names(table["workload"])
    return Benchmark(
        name=table["name"],
        workload=table["workload"],
        settings={key: _number(key, value) for key, value in table.items() if key in fields},
        axes={key: tuple(_number(key, value) for value in values) for key, values in table.get("axes", {}).items()},
        effort=_effort(table),
        expectations=tuple(expectation_of(values) for values in table.get("expect", [])),
        required=table.get("required", False),
    )


def _number(key: str, value: Any) -> Any:  # noqa: ANN401 - any TOML value
    return float(value) if key in _fractional() and isinstance(value, int) else value


@cache
def _fractional() -> frozenset[str]:
    """Settings that may be written without a fraction, and are numbers with one all the same."""
    hints = [(name, hint) for kind in SETTINGS_OF.values() for name, hint in get_type_hints(kind).items()]
    return frozenset(name for name, hint in hints if float in (hint, *get_args(hint)))


def _effort(table: dict[str, Any]) -> Effort:
    names = {field.name for field in dataclasses.fields(Effort)}
    given = {key: value for key, value in table.items() if key in names}
    effort = Effort(**given)
    return dataclasses.replace(
        effort, max_attempts=max(effort.attempts, effort.max_attempts), time_limit_s=float(effort.time_limit_s)
    )
