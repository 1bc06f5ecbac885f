"""``--set KEY=VALUE``: settings of the command line laid over a suite's tables, typed by the suite's own schema."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pybench.files.suite.own_files import FILE_SETTINGS, MODEL, read_own_files
from pybench.files.suite.profiles import WrittenSuite, fields_of_workload, written_suite
from pybench.files.suite.rules import suite_problems
from pybench.files.suite.schema import suite_model
from pybench.files.toml_file import did_you_mean, key_text, message_of, valid_text
from pybench.model.errors import UsageError
from pybench.model.suite import TrainingJob
from pybench.model.workloads.settings import MODEL_CONFIG

_FORM = "KEY=VALUE with a KEY such as batch_size, benchmark.decode.attempts or axes.tensor_parallel"
_BENCHMARK, _AXES = "benchmark.", "axes."
_JOB = {f"job.{field.name}" for field in dataclasses.fields(TrainingJob)}


def with_settings(
    document: dict[str, Any], written: WrittenSuite, profile: str | None, words: Sequence[str], folder: Path
) -> WrittenSuite:
    """Lay every text ``KEY=VALUE`` over the benchmarks under ``profile``, the later ones over the earlier ones.

    ``written`` is the ``document`` as values, whose files are relative to ``folder``; those of the command line are
    relative to the working directory. A setting that is an axis is fixed to the value: its points keep their
    ids. Raises ``UsageError`` naming the text, its key and what is valid.
    """
    names = [benchmark.name for benchmark in written.benchmarks]
    overrides = [_Override.of(word, names) for word in words]
    for override in overrides:
        document = _laid(document, profile, override)
    if not words:
        return written
    files, problems = read_own_files(document, folder)
    if not problems:
        changed = written_suite(document, files)
        problems = suite_problems(changed, (profile,))
    if problems:
        path, message = problems[0]
        of_all = next((one.word for one in overrides if one.benchmark is None), None)
        hint = f"; of one benchmark alone: --set {_BENCHMARK}NAME.{of_all}" if of_all and len(names) > 1 else ""
        given = " ".join(f"--set {word}" for word in words)
        raise UsageError(f"{given}: {key_text(path, document)}: {message}{hint}")
    return changed


def names_file(word: str) -> bool:
    """Whether a text ``KEY=VALUE`` names a file of this machine."""
    return word.partition("=")[0].strip().rpartition(".")[2] in FILE_SETTINGS


@dataclass(frozen=True)
class _Override:
    """One text, taken apart. ``benchmark`` is ``None`` where it is for all that have the key."""

    word: str
    benchmark: str | None
    is_axis: bool
    key: str
    text: str

    @classmethod
    def of(cls, word: str, names: Sequence[str]) -> _Override:
        path, sign, text = word.partition("=")
        path = path.strip()
        if not sign or not path:
            raise UsageError(f"--set {word}: expected {_FORM}")
        benchmark = None
        if path.startswith(_BENCHMARK):
            benchmark, path = _benchmark_of(word, path.removeprefix(_BENCHMARK), names)
        return cls(word, benchmark, path.startswith(_AXES), path.removeprefix(_AXES), text.strip())

    def values(self) -> list[Any]:
        """Value of the text: a TOML value, else the text itself."""
        try:
            found = tomllib.loads(f"value = {self.text}")
        except (tomllib.TOMLDecodeError, RecursionError, ValueError):
            found = {}
        values = [found["value"], self.text] if len(found) == 1 else [self.text]
        return [_from_here(value) for value in values] if self.key in FILE_SETTINGS else values

    def refuse(self, message: str) -> UsageError:
        return UsageError(f"--set {self.word}: {message}")


def _benchmark_of(word: str, path: str, names: Sequence[str]) -> tuple[str, str]:
    """The benchmark that the path begins with, and the rest; a name may have dots."""
    for name in sorted(names, key=len, reverse=True):
        if path.startswith(f"{name}."):
            return name, path.removeprefix(f"{name}.")
    if path in names:
        raise UsageError(f"--set {word}: {path} is a benchmark; add one of its settings: benchmark.{path}.attempts=5")
    wanted = path.partition(".")[0]
    raise UsageError(
        f"--set {word}: no benchmark {wanted!r}{did_you_mean(wanted, names)}; benchmarks: {', '.join(names)}"
    )


def _laid(document: dict[str, Any], profile: str | None, override: _Override) -> dict[str, Any]:
    meant = [table for table in document["benchmark"] if override.benchmark in {None, table["name"]}]
    valid = {table["name"]: _keys(table, axes_only=override.is_axis) for table in meant}
    takes = {name for name, keys in valid.items() if override.key in keys}
    if not takes:
        everything = set().union(*valid.values())
        noun = "axis" if override.is_axis else "setting"
        where = f"of benchmark {override.benchmark}" if override.benchmark else "of any benchmark"
        raise override.refuse(f"{override.key!r} is no {noun} {where}{valid_text(override.key, everything)}")
    errors: list[str] = []
    for value in override.values():
        changed = deepcopy(document)
        for table in changed["benchmark"]:
            if table["name"] in takes:
                is_axis = bool(_same_place(override.key) & {*table.get("axes", {})})
                _put(table, override.key, value, is_axis=is_axis)
                if profile is not None:
                    over = changed["profile"][profile].setdefault("benchmark", {}).setdefault(table["name"], {})
                    _put(over, override.key, value, is_axis=is_axis)
        try:
            suite_model().model_validate(changed)
        except ValidationError as error:
            errors.append(message_of(error.errors(include_url=False)[0], ()))
        else:
            return changed
    raise override.refuse(errors[0])


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


def _from_here(value: object) -> object:
    """Paths of the command line, relative to the working directory."""
    if isinstance(value, list):
        return [_from_here(each) for each in value]
    return str(Path(value).absolute()) if isinstance(value, str) and value else value
