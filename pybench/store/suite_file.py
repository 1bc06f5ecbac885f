"""Read a suite file strictly: every problem is found and reported at once."""

from __future__ import annotations

import dataclasses
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pybench.model.errors import FileError, Problem
from pybench.model.settings import WORKLOADS, Effort
from pybench.model.suite import Benchmark, Expectation, Suite
from pybench.store.problem_text import describe, did_you_mean, key_text, message_of
from pybench.store.suite_checks import cross_checks
from pybench.store.suite_profiles import apply_profile
from pybench.store.suite_schema import suite_model, suite_schema
from pybench.store.toml_lines import KeyPath, toml_lines

__all__ = ["read_suite", "suite_schema"]

MAX_FILE_BYTES = 2**20
MAX_PROBLEMS = 50


def read_suite(path: Path, *, profile: str | None, machine_kind: str) -> Suite:
    """Read, check and apply a profile: ``profile``, else the one named like ``machine_kind`` if the suite has it.

    Raises ``FileError`` with every problem in the file, also those in profiles that aren't applied.
    """
    document, lines = _parse(path)
    problems = _shape_problems(document)
    if not problems:
        profiles = document.get("profile", {})
        if profile is not None and profile not in profiles:
            valid = ", ".join(profiles) or "none, the suite has no profiles"
            raise _refuse(path, f"no profile {describe(profile)}{did_you_mean(profile, profiles)}; valid: {valid}")
        chosen = profile if profile is not None else machine_kind if machine_kind in profiles else None
        problems = cross_checks(document, chosen)
    if problems:
        raise FileError(_located(path, document, lines, problems))
    return _build(path, document, chosen)


def _refuse(path: Path, message: str, line: int | None = None) -> FileError:
    return FileError((Problem(file=str(path), line=line, path="", message=message),))


def _parse(path: Path) -> tuple[dict[str, Any], dict[KeyPath, int]]:
    text = _text(path)
    try:
        document = tomllib.loads(text)
        return document, toml_lines(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise _refuse(path, f"not valid TOML: {error}", int(line[1]) if line else None) from error
    except RecursionError as error:
        raise _refuse(path, "nested too deeply; a suite needs no more than four levels") from error
    except ValueError as error:
        raise _refuse(path, f"not valid TOML: {error}") from error


def _text(path: Path) -> str:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise _refuse(path, "not a regular file; name a suite's .toml file")
        if about.st_size > MAX_FILE_BYTES:
            raise _refuse(path, f"{about.st_size} bytes; a suite file has at most {MAX_FILE_BYTES}")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise _refuse(path, f"no such file{_nearby(path)}") from error
    except (OSError, ValueError) as error:
        raise _refuse(path, f"can't be read: {error}") from error
    if not data.strip():
        raise _refuse(path, 'empty; a suite begins with schema = 1, name = "…" and a [[benchmark]] table')
    if b"\0" in data:
        raise _refuse(path, "binary data; a suite is a TOML text file")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise _refuse(path, "not UTF-8; save the file in that encoding", line) from error


def _nearby(path: Path) -> str:
    names = sorted(other.name for other in path.parent.glob("*.toml")) if path.parent.is_dir() else []
    found = f"; suites in that folder: {', '.join(names[:20])}" if names else ""
    return did_you_mean(path.name, names) + found


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
    """Drop the workload that pydantic puts behind a benchmark's index, and its mark of a refused table name."""
    path = (*loc[:2], *loc[3:]) if loc[:1] == ("benchmark",) else loc
    return tuple(part for part in path if part != "[key]")


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
    if isinstance(part, str) and part in WORKLOADS:
        return next((kind for kind in arguments if kind.__name__ == f"{part}_benchmark"), None)
    last = arguments[-1] if arguments else None
    return getattr(last, "__origin__", last) if getattr(last, "__metadata__", None) else last


def _located(
    path: Path, document: dict[str, Any], lines: dict[KeyPath, int], problems: list[tuple[KeyPath, str]]
) -> tuple[Problem, ...]:
    located = [
        Problem(file=str(path), line=_line(lines, keys), path=key_text(keys, document), message=message)
        for keys, message in problems[:MAX_PROBLEMS]
    ]
    located.sort(key=lambda problem: problem.line or 0)
    if len(problems) > MAX_PROBLEMS:
        located.append(Problem(file=str(path), line=None, path="", message="more problems follow; mend these first"))
    return tuple(located)


def _line(lines: dict[KeyPath, int], keys: KeyPath) -> int | None:
    return next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), None)


def _build(path: Path, document: dict[str, Any], profile: str | None) -> Suite:
    tables = [apply_profile(document, table, profile) for table in document["benchmark"]]
    return Suite(
        name=document["name"],
        description=document.get("description", ""),
        benchmarks=tuple(_benchmark(table) for table in tables),
        profile=profile,
        path=str(path),
    )


def _benchmark(table: dict[str, Any]) -> Benchmark:
    kind = next(kind for name, kind in WORKLOADS.items() if name == table["workload"])
    fields = {field.name for field in dataclasses.fields(kind)}
    return Benchmark(
        name=table["name"],
        workload=table["workload"],
        settings={key: _number(key, value) for key, value in table.items() if key in fields},
        axes={key: tuple(_number(key, value) for value in values) for key, values in table.get("axes", {}).items()},
        effort=_effort(table),
        expectations=tuple(Expectation(**values) for values in table.get("expect", [])),
    )


def _number(key: str, value: Any) -> Any:  # noqa: ANN401 - any TOML value
    return float(value) if key == "learning_rate" else value


def _effort(table: dict[str, Any]) -> Effort:
    names = {field.name for field in dataclasses.fields(Effort)}
    given = {key: value for key, value in table.items() if key in names}
    effort = Effort(**given)
    return dataclasses.replace(
        effort, max_attempts=max(effort.attempts, effort.max_attempts), time_limit_s=float(effort.time_limit_s)
    )
