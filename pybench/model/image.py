"""Container images as the lock file pins them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pybench.model.devices import DeviceKind

Entrypoint = Literal["replace", "keep"]
"""Whether the image's entrypoint runs before the worker: NGC images switch on forward compatibility in theirs."""


@dataclass(frozen=True, kw_only=True)
class PlatformDigests:
    """One platform's image, such as linux/amd64.

    ``manifest`` is what registries serve it under, ``config`` what engines call its id. An image built on this machine
    has the second only.
    """

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
    entrypoint: Annotated[Entrypoint, "whether the worker replaces or uses the image's entrypoint"] = "replace"
    cuda: Annotated[str | None, "CUDA version inside"] = None
    minimum_driver: Annotated[str | None, "oldest NVIDIA driver it runs on"] = None
    dockerfile: Annotated[str | None, "folder below containers/ it is built from; none for an upstream image"] = None
    verified_by: Annotated[str | None, "tool that queried the registry; none: unverified"] = None
    verified_utc: Annotated[str | None, "when the registry was queried"] = None
    source: Annotated[str, "where the digests were found"] = ""

    def digests(self, platform: str) -> tuple[str, ...]:
        """Every digest that names this image on ``platform``, the most exact first."""
        own = self.platforms.get(platform, PlatformDigests())
        return tuple(digest for digest in (own.config, own.manifest, self.index_digest) if digest is not None)

    def references(self, platform: str) -> tuple[str, ...]:
        """Names by digest to look for or to pull; a tag is in none of them. An image's id needs no repository."""
        own = self.platforms.get(platform, PlatformDigests())
        named = [f"{self.repository}@{digest}" for digest in (own.manifest, self.index_digest) if digest is not None]
        return (*named, *([own.config] if own.config is not None else []))


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
