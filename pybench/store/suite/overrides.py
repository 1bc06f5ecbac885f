"""``--set KEY=VALUE``: settings of the command line laid over a suite's tables, typed by the suite's own schema."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pybench.model.errors import UsageError
from pybench.store.suite.parse import written_suite
from pybench.store.suite.profiles import WrittenSuite, fields_of_workload
from pybench.store.suite.rules import suite_problems
from pybench.store.suite.schema import suite_model
from pybench.store.toml.problem_text import did_you_mean, key_text, message_of

_FORM = "KEY=VALUE with a KEY such as batch_size, benchmark.decode.attempts or axes.tensor_parallel"
_BENCHMARK, _AXES = "benchmark.", "axes."


def with_settings(
    document: dict[str, Any], written: WrittenSuite, profile: str | None, words: Sequence[str]
) -> WrittenSuite:
    """Lay every text ``KEY=VALUE`` over the benchmarks under ``profile``, the later ones over the earlier ones.

    ``written`` is the ``document`` as values. A setting that is an axis is fixed to the value: its points keep their
    ids. Raises ``UsageError`` naming the text, its key and what is valid.
    """
    names = [benchmark.name for benchmark in written.benchmarks]
    for word in words:
        document = _laid(document, profile, _Override.of(word, names))
    if not words:
        return written
    changed = written_suite(document)
    if problems := suite_problems(changed, (profile,)):
        path, message = problems[0]
        raise UsageError(f"{' '.join(f'--set {word}' for word in words)}: {key_text(path, document)}: {message}")
    return changed


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
        """What the text may stand for: a TOML value, else the text itself."""
        try:
            found = tomllib.loads(f"value = {self.text}")
        except (tomllib.TOMLDecodeError, RecursionError, ValueError):
            return [self.text]
        return [found["value"], self.text] if len(found) == 1 else [self.text]

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
    takes = _targets(document["benchmark"], override)
    errors: list[str] = []
    for value in override.values():
        changed = _with(document, profile, takes, override.key, value)
        if (error := _shape_error(changed)) is None:
            return changed
        errors.append(error)
    raise override.refuse(errors[0])


def _targets(tables: Sequence[dict[str, Any]], override: _Override) -> set[str]:
    """Names of the benchmarks that have the key. Raises ``UsageError`` where none has."""
    meant = [table for table in tables if override.benchmark in {None, table["name"]}]
    valid = {table["name"]: _keys(table, axes_only=override.is_axis) for table in meant}
    takes = {name for name, keys in valid.items() if override.key in keys}
    if not takes:
        everything = sorted(set().union(*valid.values()))
        noun = "axis" if override.is_axis else "setting"
        where = f"of benchmark {override.benchmark}" if override.benchmark else "of any benchmark"
        raise override.refuse(
            f"{override.key!r} is no {noun} {where}{did_you_mean(override.key, everything)}; "
            f"valid are {', '.join(everything) or 'none'}"
        )
    return takes


def _keys(table: dict[str, Any], *, axes_only: bool) -> set[str]:
    return set(table.get("axes", {})) if axes_only else set(fields_of_workload(table["workload"]))


def _with(document: dict[str, Any], profile: str | None, takes: set[str], key: str, value: object) -> dict[str, Any]:
    """The document with the value in the tables of the benchmarks ``takes``, and in what the profile lays over them."""
    changed = deepcopy(document)
    for table in changed["benchmark"]:
        if table["name"] in takes:
            is_axis = key in table.get("axes", {})
            _put(table, key, value, is_axis=is_axis)
            if profile is not None:
                own = changed["profile"][profile].setdefault("benchmark", {}).setdefault(table["name"], {})
                _put(own, key, value, is_axis=is_axis)
    return changed


def _put(table: dict[str, Any], key: str, value: object, *, is_axis: bool) -> None:
    if is_axis:
        table.setdefault("axes", {})[key] = value if isinstance(value, list) else [value]
    else:
        table[key] = value


def _shape_error(document: dict[str, Any]) -> str | None:
    """What the schema has against the document, if anything."""
    try:
        suite_model().model_validate(document)
    except ValidationError as error:
        return message_of(error.errors(include_url=False)[0], ())
    return None
