"""Read a suite file strictly: every problem is found and reported at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from pybench.files.shipped import shipped_suites
from pybench.files.suite.overrides import with_settings
from pybench.files.suite.own_files import with_own_files
from pybench.files.suite.profiles import benchmark_of, form_problems, is_omitted, profile_of
from pybench.files.suite.rules import suite_problems
from pybench.files.suite.schema import MARKS, WORD, suite_model, suite_schema
from pybench.files.toml_file import KeyPath, KeyProblem, describe, did_you_mean, located, message_of, read_toml, refuse
from pybench.model.container import ContainerRequest, Mount
from pybench.model.errors import FileError, Problem
from pybench.model.suite import Suite
from pybench.model.workloads.registry import SETTINGS_OF

__all__ = ["read_suite", "suite_schema"]

MAX_PROBLEMS = 50
_RATES = "node_rates"
"""The shipped suite whose points ``rates = true`` adds."""


def read_suite(
    path: Path,
    *,
    profile: str | None,
    machine_kind: str,
    settings: Sequence[str] = (),
    gpu_memory_bytes: float | None = None,
) -> Suite:
    """Read, check and apply a profile: ``profile``, else the one for ``machine_kind`` or for GPUs of so much memory.

    ``settings`` are texts ``KEY=VALUE`` that are laid over the result. Raises ``FileError`` with every problem in the
    file, also those in profiles that aren't applied, and ``UsageError`` for ``settings``.
    """
    document, lines = read_toml(path, "a suite")
    if problems := _schema_problems(document) or list(form_problems(document)):
        raise _refusal(path, document, lines, problems)
    whole, models, problems = with_own_files(document, path.parent)
    if problems:
        raise _refusal(path, document, lines, problems)
    profiles = whole.get("profile", {})
    if profile is not None and profile not in profiles:
        valid = ", ".join(profiles) or "none, the suite has no profiles"
        raise refuse(path, f"no profile {describe(profile)}{did_you_mean(profile, profiles)}; valid: {valid}")
    chosen = profile_of(profiles, machine_kind, gpu_memory_bytes) if profile is None else profile
    if problems := suite_problems(whole, (chosen, *profiles)):
        raise _refusal(path, document, lines, problems)
    if settings:
        whole, models = with_settings(document, chosen, settings, path.parent)
    over = whole["profile"][chosen] if chosen else {}
    container = whole.get("container", {})
    suite = Suite(
        name=whole["name"],
        description=whole.get("description", ""),
        benchmarks=tuple(benchmark_of(table, over) for table in whole["benchmark"] if not is_omitted(table, over)),
        profile=chosen,
        path=str(path),
        container=ContainerRequest(
            image=container.get("image"),
            mounts=tuple(Mount(**mount) for mount in container.get("mounts", [])),
            environment=container.get("environment", {}),
            secrets=tuple(container.get("secrets", [])),
            relax=tuple(dict.fromkeys(container.get("relax", []))),
        ),
        own_models=models,
    )
    if document.get("rates") and "cpu" not in (machine_kind, chosen):
        shipped = shipped_suites() / f"{_RATES}.toml"
        rates = read_suite(shipped, profile=None, machine_kind=machine_kind, gpu_memory_bytes=gpu_memory_bytes)
        added = (replace(benchmark, gives_rates=True) for benchmark in rates.benchmarks)
        suite = replace(suite, benchmarks=(*added, *suite.benchmarks))
        twice = [name for name, number in Counter(each.name for each in suite.benchmarks).items() if number > 1]
        if twice:
            raise refuse(path, f"benchmark {describe(twice[0])}: rates = true adds one of this name; rename it")
    return suite


def _schema_problems(document: dict[str, Any]) -> list[KeyProblem]:
    try:
        suite_model().model_validate(document)
    except ValidationError as error:
        return [
            (_path(item["loc"]), message_of(item, _siblings(item["loc"]), beside_numbers=WORD in item["loc"]))
            for item in error.errors(include_url=False)[: MAX_PROBLEMS + 1]
        ]
    return []


def _path(loc: tuple[str | int, ...]) -> KeyPath:
    """Drop the workload that pydantic puts behind a benchmark's index, and its own marks in brackets."""
    path = (*loc[:2], *loc[3:]) if loc[:1] == ("benchmark",) else loc
    return tuple(part for part in path if part != "[key]" and part not in MARKS)


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


def _refusal(path: Path, document: dict[str, Any], lines: dict[KeyPath, int], problems: list[KeyProblem]) -> FileError:
    error = located(path, document, lines, problems[:MAX_PROBLEMS])
    if len(problems) <= MAX_PROBLEMS:
        return error
    more = Problem(file=str(path), line=None, path="", message="more problems follow; fix these first")
    return FileError((*error.problems, more))
