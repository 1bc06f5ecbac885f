"""Images of the lock, chosen by name or by the backend they serve."""

from __future__ import annotations

import platform

from pybench.model.container import ImageLock, LockedImage
from pybench.model.errors import MachineError, UsageError
from pybench.model.machine import DeviceKind

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class AbsentImageError(MachineError):
    """The image is not on this machine: ``--engine auto`` tries the next engine, a named engine reports it."""


def this_platform() -> str:
    """This machine's platform as images name it, such as ``linux/amd64``."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def locked_image(lock: ImageLock, name: str | None, backend: str, device: DeviceKind) -> LockedImage:
    """The image called ``name``, else the one that serves ``backend``. Raises ``MachineError`` when there is none."""
    here = this_platform()
    image = lock.named(name) if name else lock.serving(backend, here, device)
    if image is None:
        raise AbsentImageError(f"{lock.path} has no image for backend {backend} on {device}, {here}")
    if not image.references(here):
        has = ", ".join(image.platforms)
        raise MachineError(f"image {image.name} is locked for {has or 'no platform'}, this machine is {here}")
    return image


def chosen(lock: ImageLock, names: tuple[str, ...]) -> tuple[LockedImage, ...]:
    """The images called ``names``; all of them without a name. Raises ``UsageError`` with the known names."""
    known = {image.name: image for image in lock.images}
    for name in names:
        if name not in known:
            raise UsageError(f"{lock.path} has no image {name!r}; it has {', '.join(known) or 'none'}")
    return tuple(known[name] for name in names) if names else lock.images
