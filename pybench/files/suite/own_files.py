"""Files that a suite names: ``model_config`` in the place of a model's name, and ``deepspeed_config``."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
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


def with_own_files(
    document: dict[str, Any], folder: Path
) -> tuple[dict[str, Any], dict[str, Architecture], list[KeyProblem]]:
    """The document with its files' content (relative to ``folder``) in their places, its models by name, problems."""
    document = deepcopy(document)
    models: dict[str, Architecture] = {}
    problems: list[KeyProblem] = []

    def content(path: KeyPath, written: str) -> Any:  # noqa: ANN401 - a name or a table
        try:
            if path[-1] == _DEEPSPEED:
                return read_deepspeed_config(folder / written)
            architecture = read_model_config(folder / written)
        except FileError as error:
            problems.extend((path, str(problem)) for problem in error.problems)
            return None
        name = config_name(folder / written, architecture)
        models[name] = architecture
        return name

    for path, table in _tables(document):
        problems += _twofold(path, table)
        for place, values in ((path, table), ((*path, "axes"), table.get("axes", {}))):
            given = dict(values)
            values.clear()
            for key, value in given.items():  # in the same order, which is that of points
                if key not in FILE_SETTINGS:
                    values[key] = value
                elif isinstance(value, list):
                    values[MODEL] = [content((*place, key, index), each) for index, each in enumerate(value)]
                else:
                    values[MODEL if key == MODEL_CONFIG else key] = content((*place, key), value)
    return document, models, problems


def _tables(document: dict[str, Any]) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
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
