"""An image built from a folder of ``containers/``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from pybench.model.container import ImageLock, LockedImage, PlatformDigests
from pybench.model.errors import UsageError
from pybench.run.images.check import confirmed
from pybench.run.images.dockerfile import check_dockerfile
from pybench.run.images.selection import this_platform

Build = Callable[[Path, str], str]
"""An engine's build: folder and tag to the image's id; raises ``MachineError``."""


def build_image(lock: ImageLock, name: str, engine: str, build: Build) -> LockedImage:
    """Build ``containers/NAME`` beside the lock with ``engine``; the result is locked by its id on this platform.

    Raises ``UsageError`` when there is no such folder, ``FileError`` when its recipe pins too little, ``MachineError``
    when the engine can't build it.
    """
    folder = Path(lock.path).resolve().parent / name
    if not (folder / "Dockerfile").is_file():
        known = sorted(path.parent.name for path in folder.parent.glob("*/Dockerfile"))
        raise UsageError(f"{folder} has no Dockerfile; there are {', '.join(known) or 'none'}")
    check_dockerfile(folder / "Dockerfile")
    tag = version("pybench").partition("+")[0]  # a tag of an image has no +
    before = lock.named(name) or LockedImage(
        name=name, repository=f"localhost/pybench/{name}", tag=tag, backends=("torch",), platforms={}
    )
    # A tag, though nothing is started by it: engines clear away images that have none.
    digest = build(folder, f"{before.repository}:{before.tag}")
    platforms = {**before.platforms, this_platform(): PlatformDigests(config=digest)}
    return confirmed(replace(before, platforms=platforms, dockerfile=name), f"{engine} build")
