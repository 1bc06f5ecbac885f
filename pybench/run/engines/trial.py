"""A first start of an image before a run: the job that it is tried with, and the Python found inside."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pybench.machine.command import CommandResult
from pybench.machine.disk import disk_error
from pybench.model.container import ImageIdentity
from pybench.model.errors import MachineError
from pybench.model.host import OLDEST_PYTHON, Place
from pybench.run.engines.base import Launch


@contextmanager
def trial_job(backend: str, gpu_uuids: tuple[str, ...]) -> Iterator[Launch]:
    """A job of one process whose folders are there within. Raises ``MachineError`` where a disk takes none."""
    room = disk_error(Path(tempfile.gettempdir()), "", " run the same command again")
    with room, tempfile.TemporaryDirectory(prefix="pybench-") as scratch:
        folder = Path(scratch)
        for name in ("stage", "exchange"):
            (folder / name).mkdir(mode=0o755)
        yield Launch(
            stage=folder / "stage",
            exchange=folder / "exchange",
            backend=backend,
            num_processes=1,
            places=(Place(gpu_uuids=gpu_uuids),),
            token=f"probe/{secrets.token_hex(8)}",
            host_environment=dict(os.environ),
        )


def python_version(image: ImageIdentity, result: CommandResult) -> str:
    """As the tried image printed it. Raises ``MachineError`` for one that is too old for the worker."""
    found = json.loads(result.out.splitlines()[-1])
    if tuple(found["version"]) < OLDEST_PYTHON:
        raise MachineError(f"image {image.name} has Python {found['python']}; the worker needs 3.10 or newer")
    return str(found["python"])
