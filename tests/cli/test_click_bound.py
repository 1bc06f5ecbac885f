"""The lower bound of click: its types of parameters are generic from 8.4 on only."""

from __future__ import annotations

import subprocess
import sys

from pybench.cli.main import COMMANDS

CODE = """
import click
def refuse(*_arguments):
    raise TypeError("type 'ParamType' is not subscriptable")
click.ParamType.__class_getitem__ = refuse
from pybench.cli.main import COMMANDS, imported
print(len([imported(entry.place) for entry in COMMANDS]))
"""


def test_every_command_is_imported_where_types_are_not_generic() -> None:
    """As with click 8.1 to 8.3, where each command ended with a traceback."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, int(done.stdout or 0)) == (0, len(COMMANDS)), done.stderr
