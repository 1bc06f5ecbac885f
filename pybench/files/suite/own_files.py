"""Files that a suite names: ``model_config`` in the place of a model's name, and ``deepspeed_config``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pybench.files.model_config import config_name, read_model_config
from pybench.files.toml_file import KeyPath, KeyProblem, read_json_table
from pybench.model.decoder_shape import Architecture
from pybench.model.errors import FileError, Problem
from pybench.model.text import listed
from pybench.model.workloads.settings import MODEL_CONFIG

MODEL = "model"
_DEEPSPEED = "deepspeed_config"
FILE_SETTINGS = frozenset((MODEL_CONFIG, _DEEPSPEED))
"""Settings of a suite file that name a file."""
_Tables = Iterator[tuple[KeyPath, dict[str, Any]]]


@dataclass(frozen=True)
class OwnFiles:
    """Model names by written path, models by name, and ``tables`` of DeepSpeed by path."""

    names: dict[str, str] = field(default_factory=dict)
    architectures: dict[str, Architecture] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)

    def named(self, values: dict[str, Any]) -> dict[str, Any]:
        """Settings, or axes, with models' names and other files' content in the places of files."""
        named: dict[str, Any] = {}  # in the same order, which is that of points
        for key, value in values.items():
            if key == MODEL_CONFIG:
                named[MODEL] = [self.names[each] for each in value] if isinstance(value, list) else self.names[value]
            else:
                named[key] = self.tables[value] if key == _DEEPSPEED else value
        return named


def read_own_files(document: dict[str, Any], folder: Path) -> tuple[OwnFiles, list[KeyProblem]]:
    """Every file that the document names, relative to ``folder``, and what is wrong with it or its place."""
    found = OwnFiles()
    problems: list[KeyProblem] = []
    for path, table in _tables(document):
        problems += _twofold(path, table)
        for key, written in _files(path, table):
            try:
                if key[-1] == _DEEPSPEED:
                    found.tables[written] = read_deepspeed_config(folder / written)
                elif written not in found.names:
                    architecture = read_model_config(folder / written)
                    name = found.names[written] = config_name(folder / written, architecture)
                    found.architectures[name] = architecture
            except FileError as error:
                problems += [(key, str(problem)) for problem in error.problems]
    return found, problems


def _tables(document: dict[str, Any]) -> _Tables:
    """Every table with settings: benchmarks, profiles, and what these lay over single benchmarks."""
    for index, table in enumerate(document["benchmark"]):
        yield ("benchmark", index), table
    for name, profile in document.get("profile", {}).items():
        yield ("profile", name), profile
        for benchmark, table in profile.get("benchmark", {}).items():
            yield ("profile", name, "benchmark", benchmark), table


def _twofold(path: KeyPath, table: dict[str, Any]) -> Iterator[KeyProblem]:
    axes = table.get("axes", {})
    given: list[tuple[str, ...]] = [(key,) for key in (MODEL, MODEL_CONFIG) if key in table]
    given += [("axes", key) for key in (MODEL, MODEL_CONFIG) if key in axes]
    if len(given) > 1 and any(MODEL_CONFIG in keys for keys in given):
        names = listed(".".join(keys) for keys in given)
        yield (*path, *given[-1]), f"{names} both name a model; keep one of the two"


def _files(path: KeyPath, table: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    for key in FILE_SETTINGS & {*table}:
        yield (*path, key), table[key]
    for index, name in enumerate(table.get("axes", {}).get(MODEL_CONFIG, ())):
        yield (*path, "axes", MODEL_CONFIG, index), name


_REFUSED = {
    "scheduler": "the learning rate is constant here",
    "autotuning": "it would start trainings of its own",
    "elasticity": "it would change the batch",
    "data_efficiency": "it would change the samples",
    "curriculum_learning": "it would change the samples",
    "compression_training": "it would change the model",
    "flops_profiler": "it would be measured, too",
    **dict.fromkeys(("tensorboard", "wandb", "comet", "csv_monitor"), "it would write files while steps are measured"),
}


def read_deepspeed_config(path: Path) -> dict[str, Any]:
    """The file's table. Raises ``FileError`` with every key that can't be honoured at any settings."""
    found = read_json_table(path, "a DeepSpeed config", "a table of DeepSpeed's own keys")
    problems = tuple(
        Problem(file=str(path), line=None, path=key, message=f"{why}: remove the key")
        for key, why in _REFUSED.items()
        if key in found
    )
    if problems:
        raise FileError(problems)
    return found
