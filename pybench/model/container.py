"""Container images, a container's permissions, and its state before and after a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pybench.model.machine import DeviceKind


@dataclass(frozen=True, kw_only=True)
class PlatformDigests:
    """One platform's image, such as linux/amd64. An image built on this machine has ``config`` alone."""

    manifest: Annotated[str | None, "digest of the platform's manifest"] = None
    config: Annotated[str | None, "digest of the image's configuration, its id"] = None


@dataclass(frozen=True, kw_only=True)
class LockedImage:
    """One image of the lock. Unknown is ``None``; ``verified_by`` until a registry confirmed the digests."""

    name: Annotated[str, "how suites and the command line call the image"]
    repository: Annotated[str, "registry and path, without tag or digest"]
    tag: Annotated[str, "tag the digests were resolved from; never used to start anything"]
    backends: Annotated[tuple[str, ...], "backends that run in it; the first image that lists one serves it"]
    platforms: Annotated[dict[str, PlatformDigests], "digests of each platform, such as linux/amd64"]
    device: Annotated[DeviceKind, "what its backends compute on"] = "cuda"
    index_digest: Annotated[str | None, "digest of the multi-platform index"] = None
    python: Annotated[str | None, "Python version inside"] = None
    interpreter: Annotated[str, "path of that Python inside"] = "/usr/bin/python3"
    entrypoint: Annotated[Literal["replace", "keep"], "whether the image's entrypoint runs before the worker"] = (
        "replace"
    )
    cuda: Annotated[str | None, "CUDA version inside"] = None
    minimum_driver: Annotated[str | None, "oldest NVIDIA driver it runs on"] = None
    dockerfile: Annotated[str | None, "folder below containers/ it is built from; none for an upstream image"] = None
    verified_by: Annotated[str | None, "tool that queried the registry; none: unverified"] = None
    verified_utc: Annotated[str | None, "when the registry was queried"] = None
    source: Annotated[str, "where the digests were found"] = ""

    def digests(self, platform: str) -> tuple[str, ...]:
        """Every digest that names this image on ``platform``, the most exact first."""
        known = self.platforms.get(platform, PlatformDigests())
        return tuple(digest for digest in (known.config, known.manifest, self.index_digest) if digest is not None)

    def references(self, platform: str) -> tuple[str, ...]:
        """Names by digest to look for or to pull; a tag is in none of them. An image's id needs no repository."""
        known = self.platforms.get(platform, PlatformDigests())
        named = [f"{self.repository}@{digest}" for digest in (known.manifest, self.index_digest) if digest is not None]
        return (*named, *([known.config] if known.config is not None else []))


@dataclass(frozen=True, kw_only=True)
class ImageLock:
    """All locked images, in the file's order; ``path`` is where they were read from."""

    path: str
    images: tuple[LockedImage, ...]

    def named(self, name: str) -> LockedImage | None:
        """The image called ``name``."""
        return next((image for image in self.images if image.name == name), None)

    def serving(self, backend: str, platform: str, device: DeviceKind) -> LockedImage | None:
        """First image that runs ``backend`` on ``platform`` and ``device``."""
        return next(
            (
                image
                for image in self.images
                if backend in image.backends and image.references(platform) and image.device == device
            ),
            None,
        )


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
    """An engine of this machine. ``reason`` is why it can't be used; ``installed`` is whether its command is there."""

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
    """A worker's container as read back from the engine after an attempt; ``image_id`` is what really ran.

    ``exit_code`` is ``None`` for one that went on with the next attempt, ``start_s`` the time to its first process.
    """

    id: str
    image_id: str
    exit_code: int | None
    start_s: float | None
