"""Build an image from a folder of ``containers/``."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from pybench.machine.engine_images import with_algorithm
from pybench.machine.engines import this_platform
from pybench.model.container import EngineFacts
from pybench.model.errors import MachineError, UsageError
from pybench.model.image import ImageLock, LockedImage, PlatformDigests
from pybench.runner.locked_images import Tell


def build_image(facts: EngineFacts, lock: ImageLock, name: str, tell: Tell) -> LockedImage:
    """Build ``containers/NAME`` beside the lock; the result is locked by its id on this platform.

    Raises ``UsageError`` when there is no such folder, ``MachineError`` when the engine can't build it.
    """
    folder = Path(lock.path).resolve().parent / name
    if not (folder / "Dockerfile").is_file():
        known = sorted(path.parent.name for path in folder.parent.glob("*/Dockerfile"))
        raise UsageError(f"{folder} has no Dockerfile; there are {', '.join(known) or 'none'}")
    before = lock.named(name) or LockedImage(
        name=name, repository=f"localhost/pybench/{name}", tag=version("pybench"), backends=("torch",), platforms={}
    )
    with tempfile.TemporaryDirectory(prefix="pybench-") as scratch:
        file = Path(scratch) / "id"
        _build((facts.name, "build", "--iidfile", str(file), str(folder)), tell)
        digest = with_algorithm(file.read_text(encoding="utf-8").strip())
    platforms = {**before.platforms, this_platform(): PlatformDigests(config=digest)}
    return replace(before, platforms=platforms, dockerfile=name, verified_by=f"{facts.name} build")


def _build(argv: tuple[str, ...], tell: Tell) -> None:
    last = "it said nothing"
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            tell(line.rstrip())
            last = line.strip() or last
    if process.returncode != 0:
        raise MachineError(f"{argv[0]} can't build {argv[-1]}: {last}")
