"""The lock against the registry: resolve a tag, or confirm digests that others recorded."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pybench.model.container import ImageLock, LockedImage, PlatformDigests
from pybench.run.images.lock import lock_text
from pybench.run.images.registry import RegistryManifest

Fetch = Callable[[str], RegistryManifest]
"""A registry: reference to manifest; raises ``MachineError``."""


def resolved(image: LockedImage, fetch: Fetch, tool: str) -> LockedImage:
    """``image`` with the digests that its tag means now."""
    top = fetch(f"{image.repository}:{image.tag}")
    if top.platforms:
        platforms = {
            platform: PlatformDigests(manifest=digest, config=fetch(f"{image.repository}@{digest}").config)
            for platform, digest in top.platforms.items()
        }
        found = replace(image, index_digest=top.digest, platforms=platforms)
    else:
        # The manifest of a single image does not name its platform; the lock does.
        (platform, *_) = image.platforms or ("linux/amd64",)
        own = PlatformDigests(manifest=top.digest, config=top.config)
        found = replace(image, index_digest=None, platforms={platform: own})
    return confirmed(found, tool)


def disagreements(image: LockedImage, fetch: Fetch) -> list[str]:
    """Differences between registry and lock, in words; a tag that has moved is no difference."""
    found: list[str] = []
    index = fetch(f"{image.repository}@{image.index_digest}") if image.index_digest else None
    if index and index.digest != image.index_digest:
        found.append(f"the index is {index.digest}, locked as {image.index_digest}")
    for platform, own in image.platforms.items():
        if own.manifest is None:
            continue
        if index and index.platforms.get(platform) != own.manifest:
            served = index.platforms.get(platform, "not in the index")
            found.append(f"{platform} is {served}, locked as {own.manifest}")
            continue
        served_manifest = fetch(f"{image.repository}@{own.manifest}")
        if served_manifest.digest != own.manifest:
            found.append(f"{platform} is {served_manifest.digest}, locked as {own.manifest}")
        elif own.config and served_manifest.config != own.config:
            found.append(f"{platform}'s configuration is {served_manifest.config}, locked as {own.config}")
    return found


def confirmed(image: LockedImage, tool: str) -> LockedImage:
    """``image`` marked as confirmed by a registry now."""
    return replace(image, verified_by=tool, verified_utc=datetime.now(UTC).isoformat(timespec="seconds"))


def with_image(lock: ImageLock, image: LockedImage) -> ImageLock:
    """``lock`` with ``image`` in place of the one of that name, or at its end."""
    images = tuple(image if old.name == image.name else old for old in lock.images)
    return replace(lock, images=images if lock.named(image.name) else (*images, image))


def lock_diff(before: ImageLock, after: ImageLock) -> str:
    """What a change writes, as a unified diff; empty when nothing changes."""
    name = Path(before.path).name
    old, new = (lock_text(lock).splitlines(keepends=True) for lock in (before, after))
    return "".join(difflib.unified_diff(old, new, fromfile=name, tofile=f"{name} (new)", n=1))
