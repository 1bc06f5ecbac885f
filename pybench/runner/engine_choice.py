"""From what the command line and the suite ask for to a launcher that is known to work."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pybench.launch.confinement import confinement_for
from pybench.launch.gpu_access import GpuAccess
from pybench.launch.job import Launcher
from pybench.launch.local import Local
from pybench.launch.oci import OciLauncher
from pybench.machine.engines import device_nodes, find_engine, find_engines
from pybench.model.container import ContainerSetup, EngineFacts, EngineName, ImageIdentity
from pybench.model.errors import MachineError, UsageError
from pybench.model.image import ImageLock
from pybench.runner.apptainer import apptainer_launcher
from pybench.runner.asked import Asked
from pybench.runner.container import this_runner
from pybench.runner.container_probe import probed
from pybench.runner.locked_images import AbsentImageError, Tell, locked_image, pinned_image, unpinned_image
from pybench.runner.redaction import MIN_SECRET_LENGTH
from pybench.store.image_lock import default_lock, read_lock

EngineWish = Literal["auto", "docker", "podman", "apptainer", "none"]


@dataclass(frozen=True, kw_only=True)
class EngineRequest:
    """The command line's part. ``image`` overrides what the lock and the suite name; ``python`` is for engine none."""

    engine: EngineWish = "auto"
    image: str | None = None
    allow_unpinned: bool = False
    lock: Path | None = None
    python: str | None = None


def choose_launcher(wish: EngineRequest, asked: Asked, tell: Tell) -> Launcher:
    """Launcher for ``asked``: images found by digest, pulled if an engine was named, and started once to see.

    Raises ``UsageError``, ``FileError`` or ``MachineError`` when there can be none.
    """
    engine = asked.engine or wish.engine
    _check_secrets(asked.request.secrets)
    if engine == "none" or (engine == "auto" and wish.python):
        return Local(_program(wish.python) if wish.python else sys.executable, asked.request.secrets)
    if wish.python:
        raise UsageError(f"--python names an interpreter of this machine; it goes with --engine none, not {engine}")
    if engine == "auto":
        return _automatic(wish, asked, tell)
    facts = find_engine(_known(engine))
    if facts.reason:
        raise MachineError(f"{facts.reason}; start it, choose another --engine, or run uncontained with --engine none")
    return _launcher(facts, wish, asked, tell, pull=True)


def _check_secrets(names: tuple[str, ...]) -> None:
    """Raise ``UsageError`` for a secret that isn't there, can't be passed on, or can't be told from other text."""
    for name in names:
        value = os.environ.get(name)
        if value is None:
            raise UsageError(f"the suite needs the secret {name}, which the environment doesn't have")
        if len(value) < MIN_SECRET_LENGTH or not value.isprintable():
            raise UsageError(f"the secret {name} must be one line of {MIN_SECRET_LENGTH} characters or more")


def _program(python: str) -> str:
    """``python`` itself. Raises ``UsageError`` when no worker could be started with it."""
    if shutil.which(python) is None:
        raise UsageError(f"--python {python}: no such program; name an interpreter that has the backends")
    return python


def _known(engine: str) -> EngineName:
    names: tuple[EngineName, ...] = ("docker", "podman", "apptainer", "none")
    return next(name for name in names if name == engine)


def _automatic(wish: EngineRequest, asked: Asked, tell: Tell) -> Launcher:
    """First engine that answers and has every image; without one, this Python, and the reason is told."""
    reasons = []
    for facts in find_engines():
        if facts.reason:
            reasons.append(facts.reason)
            continue
        try:
            return _launcher(facts, wish, asked, tell, pull=False)
        except AbsentImageError as error:
            reasons.append(str(error))
    if wish.image or asked.request.image:
        raise MachineError(f"no engine has the image that was asked for: {'; '.join(reasons)}")
    tell(f"not containerised: {'; '.join(reasons)}")
    return Local(sys.executable, asked.request.secrets)


def _launcher(facts: EngineFacts, wish: EngineRequest, asked: Asked, tell: Tell, *, pull: bool) -> Launcher:
    if facts.name == "apptainer":
        return apptainer_launcher(facts, _lock(wish, asked), wish.image, asked, tell, build=pull)
    return _oci_launcher(facts, wish, asked, tell, pull=pull)


def _lock(wish: EngineRequest, asked: Asked) -> ImageLock:
    return read_lock(wish.lock or (Path(asked.began.lock) if asked.began else default_lock()))


def _oci_launcher(facts: EngineFacts, wish: EngineRequest, asked: Asked, tell: Tell, *, pull: bool) -> OciLauncher:
    request = asked.request
    lock = _lock(wish, asked)
    confinement = confinement_for(request, facts, (os.getuid(), os.getgid()))
    images = tuple(_image(facts, lock, backend, wish, asked, tell, pull=pull) for backend in asked.backends)
    launcher = OciLauncher(
        container=ContainerSetup(
            engine=facts.name,
            engine_version=facts.version,
            runtime=facts.runtime,
            rootless=facts.rootless,
            lock=lock.path,
            images=images,
            mounts=request.mounts,
            relaxations=confinement.relaxations,
        ),
        confinement=confinement,
        gpu_access=_gpu_access(facts),
        runner=this_runner(),
        environment_of_suite=request.environment,
        secrets=request.secrets,
        models=_model_cache(),
    )
    return probed(launcher, facts, asked.gpu_uuids)


def _image(
    facts: EngineFacts, lock: ImageLock, backend: str, wish: EngineRequest, asked: Asked, tell: Tell, *, pull: bool
) -> ImageIdentity:
    name = wish.image or asked.image_name(backend)
    if name is None or lock.named(name):
        return pinned_image(facts, locked_image(lock, name, backend, asked.device), backend, tell, pull=pull)
    if wish.allow_unpinned or (asked.began and not asked.began.pinned):
        return unpinned_image(facts, name, backend)
    raise UsageError(f"image {name!r} is not in {lock.path}; lock it, or use --allow-unpinned and never pass")


def _gpu_access(facts: EngineFacts) -> GpuAccess:
    if facts.cdi:
        return GpuAccess(way="cdi")
    if facts.name == "docker":
        return GpuAccess(way="toolkit")
    return GpuAccess(way="nodes", device_nodes=device_nodes())


def _model_cache() -> Path | None:
    """The shell's Hugging Face hub cache, where it has one; the folder around it holds a token."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    folder = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return folder.resolve() if folder.is_dir() else None
