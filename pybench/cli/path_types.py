"""What a path on the command line may be; commands look themselves whether it is there."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from pybench.model.errors import UsageError


class _Path(click.Path):
    """A path of at least one character."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse an empty text, which Python takes for the current folder."""
        if not os.fspath(value):
            self.fail("an empty path; is a variable of the shell not set?", param, ctx)
        return super().convert(value, param, ctx)


class _Folder(_Path):
    """A folder, such as a run's."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse a file in one line, also where only the results of a run are there."""
        path = Path(value)
        if path.is_file():
            command = f"pybench report {shlex.quote(str(path))}"
            kept = f"; what a results.json has is shown by: {command}" if path.suffix == ".json" else ""
            raise UsageError(f"{path}: a folder is needed here, and this is a file{kept}")
        return super().convert(value, param, ctx)


PATH = _Path(path_type=Path)
NAMED_PATH = _Path(path_type=str)
"""As written: a name may stand in front, ``NODE=PATH``."""
FILE = _Path(path_type=Path, dir_okay=False)
FOLDER = _Folder(path_type=Path, file_okay=False)
