"""A DeepSpeed config file that a suite names: bounded JSON, without the parts that would change what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pybench.files.json_values import decode_json
from pybench.files.text_file import read_text, refuse
from pybench.files.toml.problem_text import describe
from pybench.model.errors import FileError, Problem

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
    """The file's table. Raises ``FileError`` with every key that can't be honoured.

    Whether its values agree with a point's settings is for the plan to find.
    """
    try:
        found = decode_json(read_text(path, "a DeepSpeed config", "{", ".json").encode())
    except ValueError as error:
        raise refuse(path, f"{error}") from error
    if not isinstance(found, dict):
        raise refuse(path, f"found {describe(found)}, expected a table of DeepSpeed's own keys")
    problems = [
        Problem(file=str(path), line=None, path=key, message=f"{why}: remove the key")
        for key, why in _REFUSED.items()
        if key in found
    ]
    if problems:
        raise FileError(tuple(problems))
    return found
