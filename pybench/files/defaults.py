"""Defaults of options in ``pybench.toml``, or in ``[tool.pybench]`` of ``pyproject.toml``, of the current folder."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pybench.files.safe_folder import read_named
from pybench.files.toml_file import MAX_FILE_BYTES, describe, refuse, valid_text

OPTIONS = {"runs": "root", "engine": "engine", "python": "python"}
"""Keys, with the parameter of ``pybench run`` and ``pybench plan`` that each is for."""


def read_defaults(folder: Path) -> dict[str, str]:
    """Values by parameter; empty where neither file has any. Raises ``FileError``."""
    for file, keys in ((folder / "pybench.toml", ()), (folder / "pyproject.toml", ("tool", "pybench"))):
        try:
            found = tomllib.loads(read_named(file, MAX_FILE_BYTES).decode())
        except OSError:
            continue
        except ValueError as error:
            if keys:  # another tool's file, which that tool reports
                continue
            raise refuse(file, str(error)) from error
        for key in keys:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        for key, value in found.items():
            if key not in OPTIONS:
                raise refuse(file, f"unknown key {describe(key)}{valid_text(key, OPTIONS)}")
            if not isinstance(value, str):
                raise refuse(file, f"{key}: found {describe(value)}, expected a string")
        if found:
            return {OPTIONS[key]: value for key, value in found.items()}
    return {}
