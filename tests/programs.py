"""Programs of the shell that tests put in the place of others, and a Python that is the fake worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

FAKE_WORKER = Path(__file__).parent / "run" / "fake_starter.py"
SOFTWARE = '["3.11.7", {"torch": "2.9.0", "transformers": "5.0.0"}]'
"""Versions, as a Python prints them."""


def commands_below(group: click.Command) -> dict[str, click.Command]:
    """Commands of a group by their names, each imported; none of a command that is no group."""
    if not isinstance(group, click.Group):
        return {}
    context = click.Context(group)
    found = ((name, group.get_command(context, name)) for name in group.list_commands(context))
    return {name: command for name, command in found if command is not None}


def shell_program(path: Path, script: str) -> Path:
    """Write a program; gives its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def fake_python(path: Path, behaviour: str, **environment: object) -> Path:
    """Write a Python that is the fake worker with this environment, whatever module it is to run.

    The launcher's arguments: -I -B worker/__main__.py EXCHANGE [--ranks N], or --starter FD. With ``-c`` it
    prints the packages of the drill.
    """
    more = " ".join(f'{name}="{value}"' for name, value in environment.items())
    return shell_program(
        path,
        f"[ \"$3\" != -c ] || exec echo '{SOFTWARE}'\nshift 3\n"
        f'export PYTHONPATH="{os.pathsep.join(sys.path)}" FAKE_BEHAVIOUR={behaviour} {more}\n'
        f'exec "{sys.executable}" -S "{FAKE_WORKER}" "$@"',
    )
