"""Read a suite file strictly: every problem is found and reported at once. Settings of ``--set`` are laid over it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pybench.files.shipped import shipped_suites
from pybench.files.suite.own_files import FILE_SETTINGS, MODEL, with_own_files
from pybench.files.suite.profiles import Table, benchmark_of, fields_of_workload, form_problems, is_omitted, profile_of
from pybench.files.suite.rules import suite_problems
from pybench.files.suite.schema import MARKS, WORD, model_of
from pybench.files.toml_file import (
    KeyProblem,
    describe,
    did_you_mean,
    faults,
    key_text,
    message_of,
    read_toml,
    refuse,
    valid_text,
)
from pybench.model.container import ContainerRequest, Mount
from pybench.model.decoder_shape import Architecture
from pybench.model.errors import UsageError
from pybench.model.suite import Suite, TrainingJob
from pybench.model.workloads.registry import SETTINGS_OF
from pybench.model.workloads.settings import MODEL_CONFIG

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
    document, check = read_toml(path, "a suite")
    check("schema", _schema_problems(document))
    check("rule", form_problems(document))
    whole, models, problems = with_own_files(document, path.parent)
    check("rule", problems)
    profiles = whole.get("profile", {})
    if profile is not None and profile not in profiles:
        valid = f"{did_you_mean(profile, profiles)}; valid: {', '.join(profiles) or 'none, the suite has no profiles'}"
        raise refuse(path, f"no profile {describe(profile)}{valid}", kind="rule")
    chosen = profile_of(profiles, machine_kind, gpu_memory_bytes) if profile is None else profile
    check("rule", suite_problems(whole, (chosen, *profiles)))
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
        omitted=tuple(table["name"] for table in whole["benchmark"] if is_omitted(table, over)),
    )
    if document.get("rates") and "cpu" not in (machine_kind, chosen):
        shipped = shipped_suites() / f"{_RATES}.toml"
        rates = read_suite(shipped, profile=None, machine_kind=machine_kind, gpu_memory_bytes=gpu_memory_bytes)
        added = (replace(benchmark, gives_rates=True) for benchmark in rates.benchmarks)
        suite = replace(suite, benchmarks=(*added, *suite.benchmarks))
        twice = [name for name, number in Counter(each.name for each in suite.benchmarks).items() if number > 1]
        if twice:
            check("rule", [((), f"benchmark {describe(twice[0])}: rates = true adds one of this name; rename it")])
    return suite


def _schema_problems(document: Table) -> Iterator[KeyProblem]:
    model = model_of(document)
    for fault in faults(model, document):
        # The workload that pydantic puts behind a benchmark's index is no key, nor are marks in brackets.
        loc = fault["loc"]
        path = (*loc[:2], *loc[3:]) if loc[:1] == ("benchmark",) else loc
        keys = tuple(part for part in path if part != "[key]" and part not in MARKS)
        yield keys, message_of(fault, _siblings(model, loc), beside_numbers=WORD in loc)


def _siblings(model: Any, loc: tuple[str | int, ...]) -> list[str]:  # noqa: ANN401 - types are values here
    """Keys of ``model`` that are valid where ``loc``'s last one stands."""
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


_FORM = "KEY=VALUE with a KEY such as batch_size, benchmark.decode.attempts or axes.tensor_parallel"
_BENCHMARK, _AXES = "benchmark.", "axes."
_JOB = {f"job.{field.name}" for field in dataclasses.fields(TrainingJob)}


def with_settings(
    document: Table, profile: str | None, words: Sequence[str], folder: Path
) -> tuple[Table, dict[str, Architecture]]:
    """Lay every text ``KEY=VALUE`` over the benchmarks under ``profile``, the later ones over the earlier ones.

    Returns as :func:`with_own_files`. Files of the document are relative to ``folder``, those of the command line to
    the working directory. A setting that is an axis is fixed to the value: its points keep their ids. Raises
    ``UsageError`` naming the text, its key and what is valid.
    """
    for word in words:
        document = _laid(document, profile, word)
    whole, models, problems = with_own_files(document, folder)
    if problems := problems or suite_problems(whole, (profile,)):
        path, message = problems[0]
        of_all = next((word for word in words if not word.strip().startswith(_BENCHMARK)), None)
        several = len(document["benchmark"]) > 1
        hint = f"; of one benchmark alone: --set {_BENCHMARK}NAME.{of_all}" if of_all and several else ""
        given = " ".join(f"--set {word}" for word in words)
        raise UsageError(f"{given}: {key_text(path, document)}: {message}{hint}")
    return whole, models


def _laid(document: Table, profile: str | None, word: str) -> Table:
    path, sign, text = (part.strip() for part in word.partition("="))
    if not sign or not path:
        raise UsageError(f"--set {word}: expected {_FORM}")
    benchmark = None
    if path.startswith(_BENCHMARK):
        benchmark, path = _benchmark_of(word, path, [table["name"] for table in document["benchmark"]])
    key = path.removeprefix(_AXES)
    meant = [table for table in document["benchmark"] if benchmark in {None, table["name"]}]
    valid = {table["name"]: _keys(table, axes_only=key != path) for table in meant}
    takes = {name for name, keys in valid.items() if key in keys}
    if not takes:
        noun = "setting" if key == path else "axis"
        where = f"of benchmark {benchmark}" if benchmark else "of any benchmark"
        raise UsageError(f"--set {word}: {key!r} is no {noun} {where}{valid_text(key, set().union(*valid.values()))}")
    errors: list[str] = []
    for value in _values(key, text):
        changed = deepcopy(document)
        for table in changed["benchmark"]:
            if table["name"] in takes:
                is_axis = bool(_same_place(key) & {*table.get("axes", {})})
                _put(table, key, value, is_axis=is_axis)
                if profile is not None:
                    over = changed["profile"][profile].setdefault("benchmark", {}).setdefault(table["name"], {})
                    _put(over, key, value, is_axis=is_axis)
        refused = faults(model_of(changed), changed)
        if not refused:
            return changed
        errors.append(message_of(refused[0], ()))
    raise UsageError(f"--set {word}: {errors[0]}")


def _benchmark_of(word: str, path: str, names: Sequence[str]) -> tuple[str, str]:
    """The benchmark that the path names, and the rest; a name may have dots."""
    path = path.removeprefix(_BENCHMARK)
    for name in sorted(names, key=len, reverse=True):
        if path.startswith(f"{name}."):
            return name, path.removeprefix(f"{name}.")
    if path in names:
        raise UsageError(f"--set {word}: {path} is a benchmark; add one of its settings: benchmark.{path}.attempts=5")
    wanted = path.partition(".")[0]
    raise UsageError(
        f"--set {word}: no benchmark {wanted!r}{did_you_mean(wanted, names)}; benchmarks: {', '.join(names)}"
    )


def _keys(table: dict[str, Any], *, axes_only: bool) -> set[str]:
    if not axes_only:
        return set(fields_of_workload(table["workload"])) | (_JOB if "job" in table else set())
    axes = set(table.get("axes", {}))
    return axes | {MODEL, MODEL_CONFIG} if axes & {MODEL, MODEL_CONFIG} else axes


def _put(table: dict[str, Any], key: str, value: object, *, is_axis: bool) -> None:
    if key in _JOB:
        table.setdefault("job", {})[key.removeprefix("job.")] = value
        return
    for other in _same_place(key) - {key}:
        table.pop(other, None)
        table.get("axes", {}).pop(other, None)
    if is_axis:
        table.setdefault("axes", {})[key] = value if isinstance(value, list) else [value]
    else:
        table[key] = value


def _same_place(key: str) -> set[str]:
    """Keys that mean one setting: a model is named, or its file is."""
    return {MODEL, MODEL_CONFIG} if key in {MODEL, MODEL_CONFIG} else {key}


def _values(key: str, text: str) -> list[Any]:
    """Values that a text may stand for: a TOML value, then the text itself. Paths become absolute."""
    try:
        table = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        table = {}
    values = [table["value"], text] if len(table) == 1 else [text]
    return [_from_here(value) for value in values] if key in FILE_SETTINGS else values


def _from_here(value: object) -> object:
    """Paths of the command line, relative to the working directory."""
    if isinstance(value, list):
        return [_from_here(each) for each in value]
    return str(Path(value).absolute()) if isinstance(value, str) and value else value
