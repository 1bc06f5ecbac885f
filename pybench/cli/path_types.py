"""What a path on the command line may be; commands look themselves whether it is there."""

from __future__ import annotations

from pathlib import Path

import click

PATH = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
