"""Build an image from a folder of ``containers/``."""

from __future__ import annotations

import subprocess
import tempfile
from collections import deque
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from pybench.launch.confinement import Confinement, after_refusal
from pybench.machine.engine_error import engine_error
from pybench.machine.engine_images import with_algorithm
from pybench.machine.engines import this_platform
from pybench.model.container import EngineFacts
from pybench.model.errors import UsageError
from pybench.model.image import ImageLock, LockedImage, PlatformDigests
from pybench.runner.locked_images import Tell
from pybench.runner.registry_check import confirmed
from pybench.store.dockerfile import check_dockerfile

_TAIL_LINES = 10


def build_image(facts: EngineFacts, lock: ImageLock, name: str, tell: Tell) -> LockedImage:
    """Build ``containers/NAME`` beside the lock; the result is locked by its id on this platform.

    Raises ``UsageError`` when there is no such folder, ``FileError`` when its recipe pins too little, ``MachineError``
    when the engine can't build it.
    """
    folder = Path(lock.path).resolve().parent / name
    if not (folder / "Dockerfile").is_file():
        known = sorted(path.parent.name for path in folder.parent.glob("*/Dockerfile"))
        raise UsageError(f"{folder} has no Dockerfile; there are {', '.join(known) or 'none'}")
    check_dockerfile(folder / "Dockerfile")
    before = lock.named(name) or LockedImage(
        name=name, repository=f"localhost/pybench/{name}", tag=version("pybench"), backends=("torch",), platforms={}
    )
    with tempfile.TemporaryDirectory(prefix="pybench-") as scratch:
        file = Path(scratch) / "id"
        # A tag, though nothing is started by it: engines clear away images that have none.
        named = ("--tag", f"{before.repository}:{before.tag}")
        _build(facts, ("build", "--force-rm", "--iidfile", str(file), *named, str(folder)), tell)
        digest = with_algorithm(file.read_text(encoding="utf-8").strip())
    platforms = {**before.platforms, this_platform(): PlatformDigests(config=digest)}
    return confirmed(replace(before, platforms=platforms, dockerfile=name), f"{facts.name} build")


def _build(facts: EngineFacts, command: tuple[str, ...], tell: Tell) -> None:
    """Run ``command``; an engine that refuses its runtime or cgroup manager here is given another, as for workers."""
    confinement = Confinement()
    while words := _complaint((facts.name, *confinement.engine_options, *command), tell):
        loosened = after_refusal(confinement, "\n".join(words), {}, facts)
        if loosened is None or loosened.engine_options == confinement.engine_options:
            raise engine_error(facts.name, facts.data_root, f"can't build {command[-1]}", words[-1])
        confinement = loosened
        tell(f"{facts.name}: again with {' '.join(confinement.engine_options)}")


def _complaint(argv: tuple[str, ...], tell: Tell) -> list[str]:
    """The last lines of a command that failed; none when it succeeded."""
    tail: deque[str] = deque(["it said nothing"], maxlen=_TAIL_LINES)
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            tell(line.rstrip())
            tail.extend([line.strip()] if line.strip() else [])
    return list(tail) if process.returncode else []
