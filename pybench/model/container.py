"""A container's permissions, and its state before and after a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

RelaxationName = Literal["network", "writable_root", "root_user"]
"""Permissions that a suite may request: the host's network, a writable root file system, user 0 inside."""


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A folder or file of the host, read-only inside."""

    source: Annotated[str, "absolute path on the host"]
    target: Annotated[str, "absolute path in the container"]


@dataclass(frozen=True, kw_only=True)
class ContainerRequest:
    """A suite's ``[container]`` table. Every relaxation is named in the manifest and in every report."""

    image: Annotated[str | None, "image of the lock to use instead of the backend's own"] = None
    mounts: Annotated[tuple[Mount, ...], "read-only mounts"] = ()
    environment: Annotated[dict[str, str], "environment variables of the worker"] = field(default_factory=dict)
    secrets: Annotated[tuple[str, ...], "host variables passed on without ever being written to a record"] = ()
    relax: Annotated[tuple[RelaxationName, ...], "isolation that the suite can't work with"] = ()


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """An engine of this machine. ``reason`` is why it can't be used, ``None`` when it can.

    ``installed`` is whether its command is there. ``data_root`` is where it keeps images.
    """

    name: str
    version: str | None
    reason: str | None = None
    installed: bool = True
    rootless: bool = False
    runtime: str | None = None
    runtimes: tuple[str, ...] = ()
    cdi: bool = False
    data_root: str | None = None


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """A way in which a container is less confined than by default, requested by the suite or forced by the machine."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class ImageIdentity:
    """The image that serves ``backend`` in a run, as the engine described it before the first attempt.

    ``reference`` is the digest it was looked up by (a tag only when ``pinned`` is false), ``id`` what the engine
    starts, ``digests`` all it is known by. ``python`` is the version found inside.
    """

    backend: str
    name: str
    reference: str
    id: str
    digests: tuple[str, ...]
    platform: str
    labels: dict[str, str]
    python: str | None
    interpreter: str
    entrypoint: Literal["replace", "keep"]
    pinned: bool

    @property
    def known_by(self) -> tuple[str, ...]:
        """Every digest that names it. On two hosts one of them is equal: apptainer's id is the id of a file."""
        return tuple(dict.fromkeys((self.id, *self.digests)))


@dataclass(frozen=True, kw_only=True)
class ContainerSetup:
    """Everything about a run's containers that is the same for all its attempts."""

    engine: str
    engine_version: str | None
    runtime: str | None
    rootless: bool
    lock: str
    images: tuple[ImageIdentity, ...]
    mounts: tuple[Mount, ...]
    relaxations: tuple[Relaxation, ...]

    @property
    def pinned(self) -> bool:
        """Whether every image was named by a digest of the lock."""
        return all(image.pinned for image in self.images)


@dataclass(frozen=True, kw_only=True)
class ContainerRun:
    """A worker's container as read back from the engine after an attempt.

    ``image_id`` is what really ran. ``exit_code`` is ``None`` for one that went on with the next attempt. ``start_s``
    runs from the launch to the start of the container's first process.
    """

    id: str
    image_id: str
    exit_code: int | None
    start_s: float | None
